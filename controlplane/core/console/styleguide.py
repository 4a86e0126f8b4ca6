"""The page that shows every component with every state in both themes, for whoever works on pages."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from django import forms
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from controlplane.core.console.texts import Problem
from controlplane.core.console.views import ConsoleView
from controlplane.core.documents import Change
from controlplane.core.roles import Action, require

STYLEGUIDE: Final = "Styleguide"
STAGES: Final = ("pending", "canary", "rolling", "complete", "halted", "rolled_back")
THEMES: Final = ("light", "dark")
COLOURS: Final = (
    *("bg", "surface", "surface-2", "line", "text", "muted", "accent", "accent-soft"),
    *("ok", "ok-soft", "warn", "warn-soft", "bad", "bad-soft"),
)


class Example(forms.Form):
    """A form with a field of each kind, one of them wrong."""

    name = forms.CharField(max_length=63, help_text="Lower-case letters, digits and hyphens.")
    replicas = forms.IntegerField(min_value=1, label="Simulated model servers")
    since = forms.DateTimeField(required=False, widget=forms.DateTimeInput(attrs={"type": "datetime-local"}))
    why = forms.CharField(required=False, widget=forms.Textarea(attrs={"rows": 3}))


class Styleguide(ConsoleView):
    """Made of the templates that pages are made of."""

    def get(self, request: HttpRequest) -> HttpResponse:
        """All of it, once per theme."""
        if not settings.DEBUG:
            require(self.actor, Action.WRITE, STYLEGUIDE)
        now = timezone.now()
        context: dict[str, Any] = {
            "themes": [
                (theme, Example({"name": "edge", "replicas": "0"}, auto_id=f"{theme}-%s")) for theme in THEMES
            ],
            "colours": COLOURS,
            "series": range(9),
            "states": [("ok", "Ready"), ("warn", "Starting"), ("bad", "Down"), ("idle", "Away")],
            "stages": STAGES,
            "actions": ["block", "mask", "flag", "pass"],
            "levels": ["info", "success", "warning", "error"],
            "moments": [now, now - timedelta(seconds=30), now - timedelta(days=3), None],
            "changes": [
                Change("spec.replicas", 2, 3),
                Change("metadata.labels.team", None, "search"),
                Change("schedulingProfiles[default].plugins[queue-scorer]", {"weight": 2}, None),
            ],
            "problems": [
                Problem("plugins[2].parameters.cap", "must be at least 0", 12, "cap: -1"),
                Problem("", "the pool edge has another configuration"),
            ],
        }
        return self.page("core/styleguide.html", context)
