"""The directory's addresses, below ``/patterns/hash-partitioned-attribute-map/``."""

from __future__ import annotations

from django.urls import path

from directory.api.views import CustomerProfileView, StartView

app_name = "directory"

urlpatterns = [
    path("start", StartView.as_view(), name="start"),
    path("customer-profile", CustomerProfileView.as_view(), name="customer-profile"),
]
