"""One row a customer, under the canonical address."""

from django.db import models


class Profile(models.Model):
    """A customer's profile."""

    email_address = models.CharField(primary_key=True, max_length=320)
    full_name = models.CharField(max_length=200)
    company_name = models.CharField(max_length=200)
    customer_tier = models.CharField(max_length=50)

    def __str__(self) -> str:
        return self.email_address
