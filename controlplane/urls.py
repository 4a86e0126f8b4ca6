"""Where requests to the control plane go."""

from __future__ import annotations

from django.contrib.auth.views import LogoutView
from django.urls import include, path

from controlplane import administration
from controlplane.core.console import failures
from controlplane.core.console.login import Login, Password

urlpatterns = [
    path("api/v1/", include("controlplane.configs.api.urls")),
    path("api/v1/", include("controlplane.core.api.urls")),
    path("api/v1/", include("controlplane.fleet.api")),
    path("api/v1/", include("controlplane.policies.api")),
    path("api/v1/", include("controlplane.tenancy.api")),
    path("api/v1/", include("controlplane.telemetry.api")),
    path("api/v1/", include("controlplane.usage.api")),
    path("api/v1/", include("controlplane.xds.api")),
    path("login/", Login.as_view(), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("password/", Password.as_view(), name="password"),
    path("admin/", administration.site.urls),
    path("", include("controlplane.pages")),
]

handler400 = failures.bad_request
handler403 = failures.forbidden
handler404 = failures.not_found
handler500 = failures.failed
