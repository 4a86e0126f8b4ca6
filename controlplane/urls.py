"""Where requests to the control plane go."""

from __future__ import annotations

from django.contrib.auth.views import LogoutView
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import include, path

from controlplane.core.console.login import Login, Password

urlpatterns = [
    path("api/v1/", include("controlplane.configs.api.urls")),
    path("api/v1/", include("controlplane.core.api.urls")),
    path("api/v1/", include("controlplane.fleet.api")),
    path("api/v1/", include("controlplane.tenancy.api")),
    path("api/v1/", include("controlplane.telemetry.api")),
    path("api/v1/", include("controlplane.usage.api")),
    path("api/v1/", include("controlplane.xds.api")),
    path("login/", Login.as_view(), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("password/", Password.as_view(), name="password"),
    path("", include("controlplane.pages")),
]


API = "/api/"


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Nothing is at this address."""
    return _error(request, 404, "not_found", "there is nothing here; the API is at /api/v1/schema")


def failed(request: HttpRequest) -> HttpResponse:
    """A defect; the log has what happened."""
    return _error(request, 500, "internal", "the control plane failed; its log says why")


def _error(request: HttpRequest, status: int, code: str, message: str) -> HttpResponse:
    """Data for programs, and a page for people."""
    if request.path.startswith(API):
        return JsonResponse({"code": code, "message": message, "details": []}, status=status)
    return render(request, "error.html", {"status": status, "message": message}, status=status)


handler404 = not_found
handler500 = failed
