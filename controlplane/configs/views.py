"""The pages on which a configuration is changed, published, watched, and gone back on, whatever its kind.

Each of them is given the place it belongs to (``controlplane.configs.places``).
"""

from __future__ import annotations

import re
from typing import Any, Final

import yaml
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern, path

from controlplane.configs import plans, rollouts
from controlplane.configs.canary import parse_canary
from controlplane.configs.content import parsed
from controlplane.configs.models import MAX_REASON, ConfigDocument
from controlplane.configs.places import ORDERS, POOLS, Place
from controlplane.configs.revisions import revision_of
from controlplane.configs.rollout import SPREADING, Guard, Stage
from controlplane.configs.rollouts import Wish
from controlplane.configs.services import COMMENT
from controlplane.core.console import texts
from controlplane.core.console.views import ConsoleView
from controlplane.core.errors import (
    Detail,
    ForbiddenError,
    InvalidError,
    MissingError,
    ServiceError,
    StaleError,
)
from controlplane.core.resources import Document
from controlplane.core.roles import Action
from dataplane.errors import ConfigError

MAX_REVISIONS: Final = 20
MAX_WORKERS: Final = 200
"""On a page."""
MAX_DIGITS: Final = 16
GUARD_SHARE: Final = 0.05
"""Share of failed requests at which a guarded rollout stops."""
_PERCENT: Final = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,4})?) ?%?")
GUARD_REQUESTS: Final = 20
"""A guard judges no worker by fewer."""


class ConfigPage(ConsoleView):
    """Of the document that a place has under a name."""

    place: Place = POOLS

    def row(self, name: str) -> ConfigDocument:
        """The document. ``MissingError`` when there is none."""
        return self.place.document(self.actor, name)

    def framed(self, name: str, row: ConfigDocument) -> dict[str, Any]:
        """What every page about a document shows."""
        return {
            "base": self.place.base,
            "kind": row.kind,
            "name": name,
            "document": row,
            "go": self.place.addresses(name),
            "tab": "config",
            "may_write": self.actor.may(Action.WRITE, row.kind),
            **self.place.around(self.actor, name, row),
        }


class Editor(ConfigPage):
    """The editor, the newest rollout, and the history."""

    def get(self, request: HttpRequest, name: str) -> HttpResponse:
        """The page, or its rollout alone for htmx."""
        row = self.row(name)
        if self.is_part:
            # When a rollout has ended, what follows from that comes along, and nobody asks again.
            return self.page("configs/progress.html", self._state(name, row))
        return self._editor(name, row)

    def post(self, request: HttpRequest, name: str) -> HttpResponse:
        """Check the text, or keep it as a new revision, which nobody runs before it is published."""
        row, service = self.row(name), self.place.service()
        text, comment = request.POST.get("text", ""), request.POST.get("comment", "")
        version = request.POST.get("version", "")
        pane = self.place.pane(self.actor, request.POST.dict())
        if is_trial(request, self.place):
            return self.page(self.place.pane_template, pane)
        said: dict[str, Any] = {"text": text, "comment": comment, "version": version, **pane}
        if request.POST.get("do") == "try":
            return self._editor(name, row, **said)
        try:
            document = with_comment(texts.read(text), comment)
            checked = plans.validate(self.actor, row.name, document, service)
            if request.POST.get("do") == "check":
                return self._editor(name, row, **said, checked=checked)
            required(comment)
            changed = service.update(self.actor, row.name, document, number_of(version) or 0)
        except ForbiddenError:
            raise
        except StaleError as error:
            now = self.row(name)
            stale = {"stale": error, "theirs": text_of(self.place, now)}
            return self._editor(name, now, **said, **stale, status=412)
        except ServiceError as error:
            problems = texts.problems_of(error, text)
            return self._editor(name, row, **said, problems=problems, status=422)
        if changed.version == row.version:
            messages.info(request, "This is what the newest revision says already; nothing was changed.")
        else:
            number = revision_of(changed, None).number
            messages.success(request, f"Revision {number} is kept. Publish it to use it.")
        return redirect(self.place.addresses(name).config)

    def _editor(self, name: str, row: ConfigDocument, status: int = 200, **said: Any) -> HttpResponse:
        shown = said or self.place.pane(self.actor, None)
        context = {"text": text_of(self.place, row), "version": row.version, "comment": "", **shown}
        return self.page(self.place.template, self._state(name, row) | context, status=status)

    def _state(self, name: str, row: ConfigDocument) -> dict[str, Any]:
        newest = revision_of(row, None)
        rollout = rollouts.newest_of(row)
        plan = plans.plan(self.actor, row.name, None, None, row.kind)
        shown = None if rollout is None else rollouts.detailed(row, rollout)
        rows = list(row.revisions.all()[:MAX_REVISIONS])
        return self.framed(name, row) | {
            "is_blocking": self.place.subject.is_blocking,
            "newest": newest,
            "plan": plan,
            "whose": self.place.whose(name, row),
            "rollout": shown,
            "workers": [] if shown is None else shown["workers"][:MAX_WORKERS],
            "guard_words": "" if rollout is None else words_of(rollouts.guard_of(rollout)),
            "begun_at": None if rollout is None else rollout.created_at,
            "is_spreading": rollout is not None and rollout.stage in SPREADING,
            "is_blocked": rollout is not None
            and rollout.stage in SPREADING
            and not (self.place.subject.is_overtaken and rollout.stage == Stage.ROLLING),
            "is_canary": rollout is not None and rollout.stage == Stage.CANARY,
            # A halted one may be published again.
            "is_published": rollout is not None
            and rollout.revision_id == newest.pk
            and rollout.stage != Stage.HALTED,
            "revisions": [(each, self.place.revision(name, each.number)) for each in rows],
        }


class Publish(ConfigPage):
    """Begins a rollout of the newest revision."""

    def post(self, request: HttpRequest, name: str) -> HttpResponse:
        """To a canary first, or to all at once."""
        row = self.row(name)
        text, comment = request.POST.get("canary", "").strip(), request.POST.get("comment", "").strip()
        required(comment)
        try:
            canary = parse_canary(text) if text else None
        except ConfigError as error:
            raise InvalidError.of([ConfigError(error.message, path="canary")]) from None
        failed = GUARD_SHARE if request.POST.get("guard") else None
        blocked = share_of(request.POST.get("blocked", "").strip())
        guard = None if failed is blocked is None else Guard(failed, GUARD_REQUESTS, blocked)
        wish = Wish(number_of(request.POST.get("revision", "")), canary, guard, comment[:MAX_REASON])
        rollout = rollouts.publish(self.actor, row.name, wish, row.kind)
        messages.success(request, f"Revision {rollout.revision.number} is on its way to the workers.")
        return redirect(self.place.addresses(name).config)


class RolloutAct(ConfigPage):
    """Orders to the newest rollout: promote, stop, roll back."""

    def post(self, request: HttpRequest, name: str, order: str) -> HttpResponse:
        """Obey."""
        if order not in ORDERS:
            raise MissingError(f"a rollout knows no {order}")
        meant, number = (number_of(request.POST.get(field, "")) for field in ("rollout", "revision"))
        messages.success(request, self._act(self.row(name), order, meant, number))
        return redirect(self.place.addresses(name).config)

    def _act(self, row: ConfigDocument, order: str, rollout: int | None, number: int | None) -> str:
        """What an order did, in words. ``ConflictError`` when the rollout is another, or past it."""
        if order == "promote":
            rollouts.promote(self.actor, row.name, rollout, row.kind)
            return "The canary is promoted: all workers get the revision."
        if order == "halt":
            rollouts.halt(self.actor, row.name, "stopped at the console", rollout, row.kind)
            return "The rollout is stopped; workers go back to the active revision."
        back = rollouts.roll_back(self.actor, row.name, number, rollout, row.kind)
        what = "what was before" if number is None else f"what revision {number} said"
        return f"Rolled back: revision {back.revision.number} says {what}."


class Revision(ConfigPage):
    """What a document said at one time."""

    def get(self, request: HttpRequest, name: str, number: int) -> HttpResponse:
        """The text, and what differs from the revision before."""
        row = self.row(name)
        revision = revision_of(row, number if number < 10**MAX_DIGITS else 0)
        rows = row.revisions.filter(number__lt=number)
        before, rollout = rows.first(), rollouts.newest_of(row)
        context = {
            "revision": revision,
            "before": before,
            "changes": [] if before is None else plans.between(before, revision),
            "text": yaml.safe_dump(parsed(revision.content), sort_keys=False, allow_unicode=True, width=100),
            "is_active": revision.pk == row.active_id,
            "is_newest": not row.revisions.filter(number__gt=number).exists(),
            "rollout": rollout,
        }
        return self.page("configs/revision.html", self.framed(name, row) | context)


def addresses(prefix: str, place: Place) -> list[URLPattern]:
    """The pages of one place, below the address ``prefix``, which holds the ``name``."""
    return [
        path(f"{prefix}config/", Editor.as_view(place=place), name=f"{place.key}-config"),
        path(f"{prefix}publish/", Publish.as_view(place=place), name=f"{place.key}-publish"),
        path(f"{prefix}rollout/<str:order>/", RolloutAct.as_view(place=place), name=f"{place.key}-rollout"),
        path(f"{prefix}revisions/<int:number>/", Revision.as_view(place=place), name=f"{place.key}-revision"),
    ]


def is_trial(request: HttpRequest, place: Place) -> bool:
    """Whether htmx asks for what came of trying a draft, and for nothing else."""
    is_part = request.headers.get("HX-Request") == "true"
    return bool(place.pane_template) and is_part and request.POST.get("do") == "try"


def text_of(place: Place, row: ConfigDocument) -> str:
    """The document as YAML, without what the control plane adds and without why it is so."""
    document = place.service().document(row)
    metadata = dict(document["metadata"])
    notes = {key: text for key, text in metadata.pop("annotations", {}).items() if key != COMMENT}
    if notes:
        metadata["annotations"] = notes
    return texts.written({**document, "metadata": metadata})


def with_comment(document: Document, comment: str) -> Document:
    """The document with why it is so."""
    if comment.strip():
        notes = document["metadata"].setdefault("annotations", {})
        if isinstance(notes, dict):
            notes[COMMENT] = comment.strip()
    return document


def required(comment: str) -> None:
    """``InvalidError`` without a reason."""
    if not comment.strip():
        raise InvalidError("say why, in the comment", [Detail("comment", "is required: say why")])


def words_of(guard: Guard | None) -> str:
    """When a guard stops a rollout."""
    if guard is None:
        return ""
    said = [(guard.max_error_share, "fail"), (guard.max_blocked_share, "are ended by guardrails")]
    parts = [
        f"more than {share * 100:g}% of the requests {what}" for share, what in said if share is not None
    ]
    return f"{' or '.join(parts)}, of {guard.min_requests} at least"


def share_of(text: str) -> float | None:
    """A share that a form says in percent; None for nothing. ``InvalidError`` for what is none."""
    if not text:
        return None
    found = _PERCENT.fullmatch(text)
    if found is None or not 0 < float(found[1]) < 100:
        problem = ConfigError("must be a number of percent above 0 and below 100, such as 20", path="blocked")
        raise InvalidError.of([problem])
    return float(found[1]) / 100


def number_of(text: str) -> int | None:
    """A number a form sends; None for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < MAX_DIGITS else None
