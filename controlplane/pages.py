"""Addresses of the console's pages."""

from __future__ import annotations

from django.urls import path

from controlplane.fleet import views as fleet

app_name = "console"
urlpatterns = [
    path("", fleet.Overview.as_view(), name="overview"),
]
