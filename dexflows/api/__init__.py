"""The HTTP edge: translate a request, call the client, translate what came back."""
