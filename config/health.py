"""Answers for load balancers: `/healthz` says the process lives, `/readyz` that it can work."""

from django.db import Error as DatabaseError
from django.db import connection
from django.http import HttpRequest, JsonResponse


def alive(_request: HttpRequest) -> JsonResponse:
    """Tell that the process answers; touches nothing outside it."""
    return JsonResponse({"status": "ok"})


def ready(_request: HttpRequest) -> JsonResponse:
    """Tell whether the database answers. A broker that is away delays work but stops nothing, so it does not count."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        return JsonResponse({"status": "unavailable", "database": "unreachable"}, status=503)
    return JsonResponse({"status": "ok", "database": "ok"})
