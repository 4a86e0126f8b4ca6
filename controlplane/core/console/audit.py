"""Pages of the audit log: the log with what is asked of it, and one entry with all that it changed.

A page's address says all that was asked for, so that it can be sent to somebody else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

import yaml
from django import forms
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from controlplane.core import history
from controlplane.core.console.views import ConsoleView
from controlplane.core.documents import Change
from controlplane.core.kinds import KINDS
from controlplane.core.models import MAX_NAME, AuditEntry

MAX_CHANGES: Final = 6
"""Of an entry in the log; its own page shows all."""
MAX_DIGITS: Final = 18
_MINUTE: Final = "%Y-%m-%dT%H:%M"
_PAGES: Final = {
    "InferencePool": "console:pool",
    "Tenant": "console:tenant",
    "PayloadProcessorConfig": "console:processor",
    "GuardrailPolicy": "console:guardrail",
}
"""Kinds whose objects have a page of their own."""


def moment(label: str) -> forms.DateTimeField:
    """A field for a minute, in UTC."""
    return forms.DateTimeField(
        label=label,
        required=False,
        input_formats=[_MINUTE, f"{_MINUTE}:%S"],
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format=_MINUTE),
    )


class Asked(forms.Form):
    """What is asked of the log; nothing said means all."""

    kind = forms.CharField(max_length=64, required=False, widget=forms.TextInput(attrs={"list": "kinds"}))
    name = forms.CharField(max_length=MAX_NAME, required=False)
    user = forms.CharField(max_length=MAX_NAME, required=False)
    action = forms.CharField(max_length=16, required=False)
    request = forms.CharField(max_length=64, required=False, label="Request id")
    since = moment("From (UTC)")
    until = moment("To (UTC)")

    def question(self) -> history.Question:
        """For the log."""
        said = self.cleaned_data
        return history.Question(**{name: said[name] for name in self.fields})


@dataclass(frozen=True, slots=True)
class Shown:
    """An entry as the log shows it."""

    row: AuditEntry
    changes: list[Change]
    """The first of them."""
    more: int
    """How many others there are."""
    url: str
    """Of the object's own page, empty when it has none or is gone."""


def shown(row: AuditEntry, most: int = MAX_CHANGES) -> Shown:
    """An entry with its first changes."""
    found = history.told(row)
    page = _PAGES.get(row.kind) if row.after is not None else None
    url = reverse(page, args=[row.name]) if page and "/" not in row.name else ""
    return Shown(row, found[:most], max(0, len(found) - most), url)


class Audit(ConsoleView):
    """The log, newest first."""

    def get(self, request: HttpRequest) -> HttpResponse:
        """A page of it."""
        form = Asked(request.GET)
        history.rows(self.actor)  # whoever may not read the log is told so before anything else
        context: dict[str, Any] = {"form": form, "kinds": [service.kind for service in KINDS.all()]}
        if not form.is_valid():
            return self.page("core/audit.html", context, status=422)
        before, after = (_number(request.GET.get(name, "")) for name in ("before", "after"))
        found = history.page(self.actor, form.question(), before, after)
        asked = {name: value for name in form.fields if (value := request.GET.get(name, ""))}
        context |= {
            "entries": [shown(row) for row in found.entries],
            "older": None if found.older is None else f"?{urlencode({**asked, 'before': found.older})}",
            "newer": None if found.newer is None else f"?{urlencode({**asked, 'after': found.newer})}",
            "is_asked": bool(asked),
        }
        return self.page("core/audit.html", context)


class AuditOne(ConsoleView):
    """One entry, whole."""

    def get(self, request: HttpRequest, number: int) -> HttpResponse:
        """All values that differ, and both documents."""
        row = history.entry(self.actor, number)
        context = {"entry": shown(row, most=1000), "before": _text(row.before), "after": _text(row.after)}
        return self.page("core/audit_entry.html", context)


def _text(document: Any) -> str:
    return "" if document is None else yaml.safe_dump(document, sort_keys=False, allow_unicode=True)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS else None
