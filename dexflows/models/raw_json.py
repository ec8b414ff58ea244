"""Reading a jsonb column as text, for values that a codec decodes."""

from django.db.models import F, TextField
from django.db.models.functions import Cast


def raw_json(field: str) -> Cast:
    """The JSON text of a JSONField, as a query expression."""
    return Cast(F(field), TextField())
