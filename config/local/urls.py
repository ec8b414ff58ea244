"""Routes of the local profile; without it they answer 404."""

from django.urls import URLPattern, path

from config.local import login

app_name = "local"
urlpatterns: list[URLPattern] = [path("login/<str:ticket>/", login.redeem, name="login")]
