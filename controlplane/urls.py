"""Where requests to the control plane go."""

from __future__ import annotations

from django.http import HttpRequest, JsonResponse
from django.urls import include, path

urlpatterns = [
    path("api/v1/", include("controlplane.configs.api.urls")),
    path("api/v1/", include("controlplane.core.api.urls")),
    path("api/v1/", include("controlplane.fleet.api")),
    path("api/v1/", include("controlplane.tenancy.api")),
    path("api/v1/", include("controlplane.telemetry.api")),
    path("api/v1/", include("controlplane.usage.api")),
    path("api/v1/", include("controlplane.xds.api")),
]


def not_found(request: HttpRequest, exception: Exception) -> JsonResponse:
    """Nothing is at this address."""
    return _error(404, "not_found", "there is nothing here; the API is at /api/v1/schema")


def failed(request: HttpRequest) -> JsonResponse:
    """A defect; the log has what happened."""
    return _error(500, "internal", "the control plane failed; its log says why")


def _error(status: int, code: str, message: str) -> JsonResponse:
    return JsonResponse({"code": code, "message": message, "details": []}, status=status)


handler404 = not_found
handler500 = failed
