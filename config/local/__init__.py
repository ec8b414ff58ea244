"""What `make run` adds on a developer's machine: the supervisor and the one-time login link."""
