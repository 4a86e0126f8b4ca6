"""The pages on which a pool's configuration is changed, published, watched, and gone back on."""

from __future__ import annotations

from typing import Any, Final

import yaml
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from controlplane.configs import plans, rollouts
from controlplane.configs.canary import parse_canary
from controlplane.configs.models import MAX_REASON, ConfigDocument, PoolBinding
from controlplane.configs.revisions import revision_of
from controlplane.configs.rollout import SPREADING, Guard, Stage
from controlplane.configs.rollouts import Wish
from controlplane.configs.services import COMMENT, PickerConfigService
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
from controlplane.core.roles import Actor
from controlplane.fleet.services import PoolService
from dataplane.errors import ConfigError

MAX_TEXT: Final = 1024 * 1024
MAX_REVISIONS: Final = 20
GUARD_REQUESTS: Final = 20
"""A guard judges no worker by fewer."""


def document_of_pool(pool: str) -> ConfigDocument:
    """The configuration a pool is under. ``MissingError`` when there is none."""
    binding = PoolBinding.objects.select_related("document__active").filter(pool=pool).first()
    if binding is None:
        raise MissingError(f"no configuration is for the pool {pool}; apply one to change it here")
    return binding.document


class PoolConfig(ConsoleView):
    """The editor, the newest rollout, and the history."""

    def get(self, request: HttpRequest, name: str) -> HttpResponse:
        """The page, or its rollout alone for htmx."""
        row = document_of_pool(name)
        if self.is_part:
            # When a rollout has ended, what follows from that comes along, and nobody asks again.
            return self.page("configs/progress.html", self._state(name, row))
        return self._editor(name, row)

    def post(self, request: HttpRequest, name: str) -> HttpResponse:
        """Check the text, or keep it as a new revision, which nobody runs before it is published."""
        row = document_of_pool(name)
        text, comment = request.POST.get("text", ""), request.POST.get("comment", "")
        version = request.POST.get("version", "")
        said: dict[str, Any] = {"text": text, "comment": comment, "version": version}
        try:
            document = _parsed(text, comment)
            checked = plans.validate(self.actor, row.name, document, PickerConfigService())
            if request.POST.get("do") == "check":
                return self._editor(name, row, **said, checked=checked)
            if not comment.strip():
                raise InvalidError("say why, in the comment", [Detail("comment", "is required: say why")])
            number = int(version) if version.isdigit() else 0
            changed = PickerConfigService().update(self.actor, row.name, document, number)
        except ForbiddenError:
            raise
        except StaleError as error:
            theirs = _text(PickerConfigService().get(self.actor, row.name))
            stale = {"stale": error, "theirs": theirs}
            return self._editor(name, document_of_pool(name), **said, **stale, status=412)
        except ServiceError as error:
            problems = error.details or [Detail("", error.message)]
            return self._editor(name, row, **said, problems=problems, status=422)
        if changed.version == row.version:
            messages.info(request, "This is what the newest revision says already; nothing was changed.")
        else:
            messages.success(
                request, f"Revision {revision_of(changed, None).number} is kept. Publish it to use it."
            )
        return redirect("console:pool-config", name)

    def _editor(self, name: str, row: ConfigDocument, status: int = 200, **said: Any) -> HttpResponse:
        context = {"text": _text(row), "version": row.version, "comment": "", **said}
        return self.page("configs/editor.html", self._state(name, row) | context, status=status)

    def _state(self, name: str, row: ConfigDocument) -> dict[str, Any]:
        newest = revision_of(row, None)
        rollout = rollouts.newest_of(row)
        return {
            "pool": PoolService().get(self.actor, name),
            "tab": "config",
            "document": row,
            "newest": newest,
            "plan": plans.plan(self.actor, row.name, None, None),
            "rollout": None if rollout is None else rollouts.detailed(row, rollout),
            "begun_at": None if rollout is None else rollout.created_at,
            "is_spreading": rollout is not None and rollout.stage in SPREADING,
            "is_canary": rollout is not None and rollout.stage == Stage.CANARY,
            # A halted one may be published again.
            "is_published": rollout is not None
            and rollout.revision_id == newest.pk
            and rollout.stage != Stage.HALTED,
            "revisions": row.revisions.all()[:MAX_REVISIONS],
        }


class Publish(ConsoleView):
    """Begins a rollout of the newest revision."""

    def post(self, request: HttpRequest, name: str) -> HttpResponse:
        """To a canary first, or to all at once."""
        row = document_of_pool(name)
        text, comment = request.POST.get("canary", "").strip(), request.POST.get("comment", "").strip()
        if not comment:
            raise InvalidError("say why, in the comment", [Detail("comment", "is required: say why")])
        try:
            canary = parse_canary(text) if text else None
        except ConfigError as error:
            raise InvalidError.of([ConfigError(error.message, path="canary")]) from None
        shown = request.POST.get("revision", "")
        revision = int(shown) if shown.isdigit() and len(shown) < MAX_DIGITS else None
        guard = Guard(GUARD_SHARE, GUARD_REQUESTS) if request.POST.get("guard") else None
        rollout = rollouts.publish(self.actor, row.name, Wish(revision, canary, guard, comment[:MAX_REASON]))
        messages.success(request, f"Revision {rollout.revision.number} is on its way to the workers.")
        return redirect("console:pool-config", name)


MAX_DIGITS: Final = 16
GUARD_SHARE: Final = 0.05
"""Share of failed requests at which a guarded rollout stops."""


class RolloutAct(ConsoleView):
    """Orders to the newest rollout: promote, stop, roll back."""

    def post(self, request: HttpRequest, name: str, order: str) -> HttpResponse:
        """Obey."""
        done = act(self.actor, document_of_pool(name), order, request.POST.get("rollout", ""))
        messages.success(request, done)
        return redirect("console:pool-config", name)


def act(actor: Actor, row: ConfigDocument, order: str, rollout: str) -> str:
    """What an order did, in words. ``ConflictError`` when the rollout is another, or past it."""
    meant = int(rollout) if rollout.isdigit() and len(rollout) < MAX_DIGITS else None
    if order == "promote":
        rollouts.promote(actor, row.name, meant)
        return "The canary is promoted: all workers get the revision."
    if order == "halt":
        rollouts.halt(actor, row.name, "stopped at the console", meant)
        return "The rollout is stopped; workers go back to the active revision."
    back = rollouts.roll_back(actor, row.name, None, meant)
    return f"Rolled back: revision {back.revision.number} says what was before."


def _text(row: ConfigDocument) -> str:
    """The document as YAML, without what the control plane adds."""
    document = PickerConfigService().document(row)
    metadata = {key: value for key, value in document["metadata"].items() if key in {"name", "labels"}}
    notes = {k: v for k, v in (document["metadata"].get("annotations") or {}).items() if k != COMMENT}
    if notes:
        metadata["annotations"] = notes
    shown = {**document, "metadata": metadata}
    shown.pop("status", None)
    return yaml.safe_dump(shown, sort_keys=False, width=100)


def _parsed(text: str, comment: str) -> Document:
    """The document a text means, with the comment. ``InvalidError`` with the place of a mistake in YAML."""
    if len(text) > MAX_TEXT:
        raise InvalidError.of([ConfigError(f"is longer than {MAX_TEXT} characters")])
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f"line {mark.line + 1}"
        said = getattr(error, "problem", None) or "is no YAML"
        raise InvalidError.of([ConfigError(str(said), path=where)]) from None
    except RecursionError:
        raise InvalidError.of([ConfigError("is nested too deeply")]) from None
    if not isinstance(found, dict) or not isinstance(found.get("metadata"), dict):
        raise InvalidError.of([ConfigError("must be a mapping with metadata")])
    if comment.strip():
        notes = found["metadata"].setdefault("annotations", {})
        if isinstance(notes, dict):
            notes[COMMENT] = comment.strip()
    return found
