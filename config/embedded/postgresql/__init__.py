"""Django's PostgreSQL backend, connected to the embedded server."""
