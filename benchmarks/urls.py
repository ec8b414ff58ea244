"""The directory and the hand-written view in one server, so that both have the same processes and middleware."""

from django.urls import include, path

from benchmarks.peers.drf_view.views import CustomerProfileView

urlpatterns = [
    path("peer/customer-profile", CustomerProfileView.as_view()),
    path("", include("config.urls")),
]
