"""The bank's own table in the story of the money transfer."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class Account(models.Model):
    owner = models.CharField(max_length=100, primary_key=True)
    balance = models.IntegerField(default=0)

    objects: ClassVar[models.Manager[Account]] = models.Manager()

    class Meta:
        app_label = "bank"

    def __str__(self) -> str:
        return self.owner
