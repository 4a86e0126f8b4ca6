"""The addresses of ``/api/v1/``."""

from __future__ import annotations

from typing import Final

from django.urls import URLPattern, path
from drf_spectacular.views import SpectacularAPIView

from controlplane.core.api import access
from controlplane.core.api.resources import routes
from controlplane.core.api.views import ApplyView, AuditView, ExportView, WhoAmIView
from controlplane.core.kinds import KINDS

FILTERS: Final[dict[str, dict[str, str]]] = {
    "InferencePool": {"name": "name", "driver": "driver"},
    "EndpointList": {"pool": "pool", "name": "name"},
    "InferenceObjective": {"pool": "pool", "name": "name"},
    "InferenceModelRewrite": {"pool": "pool", "name": "name"},
    "Tenant": {"objective": "objective", "name": "name"},
    "VirtualKey": {"tenant": "tenant", "prefix": "prefix", "name": "name"},
    "EndpointPickerConfig": {"pool": "bindings__pool", "name": "name"},
    "ProviderCredential": {"type": "type", "name": "name"},
    "Provider": {"type": "type", "credential": "credential", "name": "name"},
    "ModelRoute": {
        "model": "patterns__pattern",
        "provider": "links__provider",
        "pool": "links__pool",
        "name": "name",
    },
    "GuardrailPolicy": {"tenant": "links__tenant", "pool": "links__pool", "name": "name"},
    "PayloadProcessorConfig": {"name": "name"},
    "Gateway": {"credential": "credential", "name": "name"},
    "ModelPrice": {"provider": "provider", "pool": "pool", "model": "model", "name": "name"},
}
"""Kind -> query parameter -> look-up."""

urlpatterns: list[URLPattern] = [
    path("apply", ApplyView.as_view(), name="apply"),
    path("export", ExportView.as_view(), name="export"),
    path("audit", AuditView.as_view(), name="audit"),
    path("whoami", WhoAmIView.as_view(), name="whoami"),
    *access.urlpatterns,
    path("schema", SpectacularAPIView.as_view(), name="schema"),
    *(route for service in KINDS.all() for route in routes(service, FILTERS[service.kind])),
]
