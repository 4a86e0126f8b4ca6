"""Pages of verdicts: what guardrails found, where, of which kind and what was done; never the text itself.

A page's address says all that was asked for, so that it can be sent to somebody else.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import msgspec
from django import forms
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from controlplane.core.console.audit import moment
from controlplane.core.console.views import ConsoleView
from controlplane.core.errors import InvalidError, MissingError, ServiceError
from controlplane.policies import verdicts
from controlplane.policies.models import GuardrailPolicy
from dataplane.errors import ConfigError
from dataplane.verdicts import VerdictRecord

PAGE: Final = 50
COLUMNS: Final = (
    *("id", "time", "action", "policy", "rule", "type", "kind", "stage", "tenant", "model", "pool"),
    *("processor", "request_id", "path", "start", "end", "score", "latency_us"),
)
"""Of an export."""
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""What spreadsheets take for the beginning of a formula."""
_ANY: Final = ("", "any")
FORMATS: Final = ("csv", "jsonl")


class UnavailableError(ServiceError):
    """Valkey is away, or there is none."""

    code = "unavailable"
    status = 503


class Asked(forms.Form):
    """What is asked of verdicts; nothing said means all."""

    policy = forms.CharField(max_length=253, required=False)
    rule = forms.CharField(max_length=63, required=False)
    action = forms.ChoiceField(
        choices=(_ANY, ("block", "block"), ("mask", "mask"), ("flag", "flag")), required=False
    )
    stage = forms.ChoiceField(
        choices=(_ANY, ("request", "request"), ("response", "response"), ("stream", "stream")), required=False
    )
    tenant = forms.CharField(max_length=253, required=False)
    model = forms.CharField(max_length=256, required=False)
    pool = forms.CharField(max_length=253, required=False)
    request_id = forms.CharField(max_length=128, required=False, label="Request id")
    since = moment("From (UTC)")
    until = moment("To (UTC)")

    def question(self) -> verdicts.Question:
        """For the stream."""
        said = self.cleaned_data
        wanted = {name: said[name] for name in verdicts.FILTERS if said[name]}
        return verdicts.Question(wanted, said["since"], said["until"])

    def asked(self) -> dict[str, str]:
        """What an address says of it."""
        return {name: value for name in self.fields if (value := self.data.get(name, ""))}


class Row(NamedTuple):
    """A verdict as pages show it."""

    id: str
    at: datetime
    record: VerdictRecord


def row(told: verdicts.Told) -> Row:
    """With the time at which the stream got it."""
    return Row(told.id, told_at(told.id), told.record)


def told_at(identity: str) -> datetime:
    """When the stream got an entry; entries of nonsensical ids are of now."""
    try:
        return datetime.fromtimestamp(int(identity.partition("-")[0]) / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return timezone.now()


class Verdicts(ConsoleView):
    """What was found, newest first; htmx asks for the newest page again."""

    def get(self, request: HttpRequest) -> HttpResponse:
        """A page of it."""
        form = Asked(request.GET)
        if not form.is_valid():
            return self.page("policies/verdicts.html", {"form": form}, status=422)
        before, after = (_id_of(request.GET.get(name, "")) for name in ("before", "after"))
        found = verdicts.page(self.actor, form.question(), PAGE, before, after)
        said = form.asked()
        context: dict[str, Any] = {
            "form": form,
            "source": found.source,
            "rows": [row(each) for each in found.items],
            "older": None if found.older is None else f"?{urlencode({**said, 'before': found.older})}",
            "newer": None if found.newer is None else f"?{urlencode({**said, 'after': found.newer})}",
            "is_cut": found.is_cut,
            "looked_at": verdicts.LOOKED_AT,
            "is_asked": bool(said),
            "is_newest": before is None and after is None,
            "query": urlencode(said),
            "here": f"{request.path}?{urlencode(said)}",
            "most": verdicts.MAX_EXPORT,
        }
        return self.page(f"policies/verdicts{'_live' if self.is_part else ''}.html", context)


class Verdict(ConsoleView):
    """One verdict, whole."""

    def get(self, request: HttpRequest, identity: str) -> HttpResponse:
        """All that is known of it. ``MissingError`` when the stream has it no more."""
        source, told = verdicts.one(self.actor, identity)
        if source is not verdicts.Source.HERE:
            raise unavailable(source)
        if told is None:
            raise MissingError(f"there is no verdict {identity}, or none any more: the newest are kept")
        context = {
            "verdict": row(told),
            "has_policy": GuardrailPolicy.objects.filter(name=told.record.policy[:253]).exists(),
        }
        return self.page("policies/verdict.html", context)


class Export(ConsoleView):
    """What is asked for as a file."""

    def get(self, request: HttpRequest) -> HttpResponse:
        """CSV for spreadsheets, or JSON lines for programs; the newest ``MAX_EXPORT`` at most."""
        form, wanted = Asked(request.GET), request.GET.get("format", "csv")
        problems = [ConfigError(f"must be one of {', '.join(FORMATS)}", path="format")]
        if wanted not in FORMATS:
            raise InvalidError.of(problems)
        if not form.is_valid():
            raise InvalidError.of(
                [ConfigError(" ".join(map(str, said)), path=name) for name, said in form.errors.items()]
            )
        found = verdicts.export(self.actor, form.question())
        if found.source is not verdicts.Source.HERE:
            raise unavailable(found.source)
        text, kind = (
            (as_csv(found.items), "text/csv; charset=utf-8")
            if wanted == "csv"
            else (as_lines(found.items), "application/jsonl")
        )
        name = f"verdicts{f'-newest-{verdicts.MAX_EXPORT}' if found.is_cut else ''}.{wanted}"
        return HttpResponse(
            text,
            content_type=kind,
            headers={"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"},
        )


def unavailable(source: verdicts.Source) -> UnavailableError:
    """Why there is nothing to show."""
    if source is verdicts.Source.UNSET:
        return UnavailableError("verdicts are not heard of here: no Valkey server is named (VALKEY_URL)")
    return UnavailableError("Valkey does not answer, so verdicts cannot be read; try again in a moment")


def as_csv(items: Sequence[verdicts.Told]) -> str:
    """With a head; nothing in it is a formula, whatever clients call their models."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(COLUMNS)
    for told in items:
        said = msgspec.structs.asdict(told.record) | {
            "id": told.id,
            "time": told_at(told.id).isoformat(timespec="milliseconds"),
        }
        writer.writerow([_cell(said[name]) for name in COLUMNS])
    return out.getvalue()


def _cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def as_lines(items: Sequence[verdicts.Told]) -> bytes:
    """One JSON object a line, as the API tells it."""
    return b"".join(
        msgspec.json.encode(msgspec.to_builtins(told.record) | {"id": told.id}) + b"\n" for told in items
    )


def _id_of(text: str) -> str | None:
    return text if verdicts.is_id(text) else None
