from django.db.backends.postgresql.base import DatabaseWrapper
__all__ = ["DatabaseWrapper"]
