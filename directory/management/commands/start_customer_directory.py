"""``manage.py start_customer_directory``: starts the directory, once."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from dexflows import DexflowsError
from directory import client
from directory.schema import PartitionSchemaMismatchError


class Command(BaseCommand):
    help = "Start the customer directory unless it runs already, and print its run ID."

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            self.stdout.write(client.start_directory())
        except (DexflowsError, PartitionSchemaMismatchError) as error:
            raise CommandError(str(error)) from error
