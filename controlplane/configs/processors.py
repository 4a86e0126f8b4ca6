"""Pages of payload processors: all of them, and what one does with a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django.db.models import Count
from django.http import HttpRequest, HttpResponse

from controlplane.configs import creating, summaries
from controlplane.configs.content import parsed
from controlplane.configs.models import ConfigDocument
from controlplane.configs.places import PROCESSORS
from controlplane.configs.services import ProcessorConfigService
from controlplane.configs.views import ConfigPage
from controlplane.core.console.views import ConsoleView
from controlplane.core.roles import Action
from controlplane.xds import workers
from controlplane.xds.models import Worker
from controlplane.xds.nodes import NodeKind

MAX_SHOWN: Final = 200
"""Processors and workers on a page."""
KIND: Final = ProcessorConfigService.kind

_HEAD: Final = """apiVersion: llm-d.ai/v1alpha1
kind: PayloadProcessorConfig
metadata:
  name: default
"""
STARTERS: Final = (
    creating.Starter(
        "guardrails",
        "Guardrails and routing by model",
        "Policies are enforced on requests and answers; model and base model go into headers for routes.",
        _HEAD
        + """plugins:
- type: body-field-to-header
  parameters:
    fieldName: model
    headerName: X-Gateway-Model-Name
- type: base-model-to-header
- type: guardrails
profiles:
- name: default
  plugins:
    request:
    - pluginRef: body-field-to-header
    - pluginRef: base-model-to-header
    - pluginRef: guardrails
    response:
    - pluginRef: guardrails
""",
    ),
    creating.Starter(
        "routing",
        "Routing by model alone",
        "Model and base model go into headers for routes; nothing is looked for in texts.",
        _HEAD
        + """plugins:
- type: body-field-to-header
  parameters:
    fieldName: model
    headerName: X-Gateway-Model-Name
- type: base-model-to-header
profiles:
- name: default
  plugins:
    request:
    - pluginRef: body-field-to-header
    - pluginRef: base-model-to-header
""",
    ),
)
"""A processor runs the configuration of its own name (``--name``)."""


class Processors(ConsoleView):
    """All configurations of payload processors."""

    def get(self, request: HttpRequest) -> HttpResponse:
        """The list."""
        found = ProcessorConfigService().rows(self.actor)
        rows = list(summaries.with_state(found).order_by("name")[:MAX_SHOWN])
        here = Worker.objects.filter(
            kind=NodeKind.PROCESSOR, pool__in=[row.name for row in rows], is_awaited=True
        )
        counts = dict(here.values_list("pool").annotate(Count("id")).order_by("pool"))
        shown = [
            {
                "row": row,
                "status": summaries.state_of(row),
                "draft": summaries.draft_of(row),
                "workers": counts.get(row.name, 0),
                "plugins": plugins_of(parsed(row.content)),
            }
            for row in rows
        ]
        context = {"processors": shown, "may_write": self.actor.may(Action.WRITE, KIND)}
        return self.page("configs/processors.html", context)


class Processor(ConfigPage):
    """One processor: what it does in which order, and its workers; htmx asks for these again."""

    place = PROCESSORS

    def get(self, request: HttpRequest, name: str) -> HttpResponse:
        """The page, or its live part."""
        row = self.row(name)
        there = workers.rows(self.actor).filter(kind=NodeKind.PROCESSOR, pool=name)[:MAX_SHOWN]
        state = summaries.with_state(ConfigDocument.objects.filter(pk=row.pk)).get()
        shown = {
            "tab": "summary",
            "status": summaries.state_of(state),
            "draft": summaries.draft_of(state),
            "workers": [workers.describe(each) | {"seen": each.seen_at} for each in there],
            "steps": steps_of(parsed(row.content if row.active is None else row.active.content)),
        }
        template = f"configs/processor{'_live' if self.is_part else ''}.html"
        return self.page(template, self.framed(name, row) | shown)


def plugins_of(said: Mapping[str, Any]) -> list[str]:
    """Types of its plugins, each once."""
    return list(dict.fromkeys(plugin["type"] for plugin in said["plugins"]))


def steps_of(said: Mapping[str, Any]) -> list[tuple[str, list[dict[str, str]]]]:
    """What happens to a request, step by step: the step in words, and its plugins with name and type."""
    types = {plugin.get("name") or plugin["type"]: plugin["type"] for plugin in said["plugins"]}

    def plugins(refs: Any) -> list[dict[str, str]]:
        names = [ref["pluginRef"] for ref in refs or ()]
        return [{"name": name, "type": types.get(name, "")} for name in names]

    profiles = said["profiles"]
    picker = said.get("profilePicker")
    steps = [("Before a profile is picked", plugins((said.get("preProcessing") or {}).get("plugins")))]
    if picker:
        steps.append(("What picks the profile", plugins([picker])))
    for profile in profiles:
        whose = f"profile {profile['name']}"
        run = profile.get("plugins") or {}
        steps.append((f"Requests, {whose}", plugins(run.get("request"))))
        steps.append((f"Answers, {whose}", plugins(run.get("response"))))
    steps.append(("After the answer", plugins((said.get("postProcessing") or {}).get("plugins"))))
    return [(words, found) for words, found in steps if found]
