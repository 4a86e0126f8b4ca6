"""The addresses of a configuration's life, the same for each kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from django.urls import URLPattern, path
from drf_spectacular.utils import extend_schema, extend_schema_view

from controlplane.configs.api import views
from controlplane.configs.services import ConfigService, PickerConfigService, ProcessorConfigService
from controlplane.core.api import openapi

_VIEWS: Final[dict[str, tuple[str, type[views.ConfigView]]]] = {
    "validate": ("validate", views.ValidateView),
    "plan": ("plan", views.PlanView),
    "revisions": ("revisions", views.RevisionsView),
    "revision": ("revisions/<int:number>", views.RevisionView),
    "diff": ("diff", views.DiffView),
    "rollouts": ("rollouts", views.RolloutsView),
    "rollout": ("rollout", views.RolloutView),
    "publish": ("publish", views.PublishView),
    "promote": ("promote", views.PromoteView),
    "halt": ("halt", views.HaltView),
    "rollback": ("rollback", views.RollBackView),
}
"""Name -> address below that of a document, and view."""


def life_of(service: ConfigService) -> Iterator[URLPattern]:
    """The addresses of one kind."""
    for name, (place, view) in _VIEWS.items():
        made: Any = type(view.__name__, (view,), {"service": service, "__doc__": view.__doc__})
        said: dict[str, Any] = {"operation_id": f"{service.plural}_{name}", "tags": [service.plural]}
        if name == "validate":
            said["request"] = openapi.body(openapi.reference(service))
        methods = {method: extend_schema(**said) for method in ("get", "post") if hasattr(view, method)}
        shown = extend_schema_view(**methods)(made)
        yield path(f"{service.plural}/<str:name>/{place}", shown.as_view(), name=f"{service.plural}-{name}")


urlpatterns: list[URLPattern] = [
    *life_of(PickerConfigService()),
    *life_of(ProcessorConfigService()),
]
