"""Pages of guardrail policies: all of them in the order in which they come, and each in plain words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from django.http import HttpRequest, HttpResponse

from controlplane.configs import summaries
from controlplane.configs.models import ConfigDocument
from controlplane.configs.rollout import Stage
from controlplane.core.console.texts import written
from controlplane.core.console.views import ConsoleView
from controlplane.core.roles import Action
from controlplane.policies import overlap, verdicts
from controlplane.policies.pages import words
from controlplane.policies.pages.place import POLICIES
from controlplane.policies.pages.trying import Tried, TryForm, try_out
from controlplane.policies.services import POLICY, GuardrailPolicyService, in_force
from dataplane.config.guardrails import GuardrailPolicySpec

MAX_SHOWN: Final = 200
"""Policies on a page."""
DAY_S: Final = 24 * 3600
"""How far back verdicts are counted."""

Named = tuple[str, GuardrailPolicySpec]


def traffic_of(spec: GuardrailPolicySpec) -> list[tuple[str, Sequence[str]]]:
    """What it is for: tenants, models, pools; those that it does not limit are left out."""
    found = (("Tenants", spec.tenants), ("Models", spec.models), ("Pools", spec.pools))
    return [(words_, names) for words_, names in found if names is not None]


class Policies(ConsoleView):
    """All policies."""

    def get(self, request: HttpRequest) -> HttpResponse:
        """The list, or its numbers again for htmx."""
        found = summaries.with_state(GuardrailPolicyService().rows(self.actor))
        rows = {row.name: row for row in found}
        ordered: list[Named] = sorted(
            ((name, in_force(row)) for name, row in rows.items()), key=lambda each: overlap.place_of(*each)
        )
        counts = verdicts.counting.since(self.actor, DAY_S)
        shown = [
            {
                "row": rows[name],
                "status": status_of(rows[name], spec),
                "rollout": rollout_of(rows[name]),
                "draft": summaries.draft_of(rows[name]),
                "spec": spec,
                "traffic": traffic_of(spec),
                "rules": [{"name": rule.name, "type": rule.type, "mode": rule.mode} for rule in spec.rules],
                "stages": _stages(spec),
                "counts": counts.of_policy(name),
            }
            for name, spec in ordered[:MAX_SHOWN]
        ]
        context = {
            "policies": shown,
            "more": max(0, len(ordered) - MAX_SHOWN),
            "counts": counts,
            "may_write": self.actor.may(Action.WRITE, POLICY),
        }
        return self.page(f"policies/list{'_table' if self.is_part else ''}.html", context)


class Policy(ConsoleView):
    """One policy."""

    def get(self, request: HttpRequest, name: str) -> HttpResponse:
        """What it looks for, where it holds, and a pane to try it in."""
        row = GuardrailPolicyService().get(self.actor, name)
        return self.page("policies/policy.html", self.about(row) | {"tried": Tried(TryForm())})

    def about(self, row: ConfigDocument) -> dict[str, Any]:
        """What the page shows of a policy: as it is in force, or its draft before it ever was."""
        rows = list(summaries.with_state(GuardrailPolicyService().rows(self.actor)))
        state = next(each for each in rows if each.pk == row.pk)
        spec = in_force(state)
        # What was never published holds for nobody.
        others = [(each.name, in_force(each)) for each in rows if each.stage is not None]
        near = overlap.beside(row.name, spec, others)
        counts = verdicts.counting.since(self.actor, DAY_S)
        rules = [
            {
                "said": sentence,
                "counts": counts.of_rule(row.name, sentence.name),
                "beaten": overlap.beaten(sentence.name, near),
            }
            for sentence in words.sentences(spec)
        ]
        return {
            "policy": row,
            "name": row.name,
            "tab": "summary",
            "kind": POLICY,
            "spec": spec,
            "go": POLICIES.addresses(row.name),
            "status": status_of(state, spec),
            "rollout": rollout_of(state),
            "draft": summaries.draft_of(state),
            "traffic": traffic_of(spec),
            "rules": rules,
            "near": near[: overlap.MAX_OTHERS],
            "counts": counts,
            "total": counts.of_policy(row.name),
            "text": written({**GuardrailPolicyService().document(row), "spec": msgspec.to_builtins(spec)}),
            "may_write": self.actor.may(Action.WRITE, POLICY),
        }


class TryPolicy(Policy):
    """The pane."""

    def post(self, request: HttpRequest, name: str) -> HttpResponse:
        """What came of it: alone for htmx, on the whole page otherwise."""
        row = GuardrailPolicyService().get(self.actor, name)
        tried = try_out(self.actor, request.POST, name)
        if self.is_part:
            return self.page("policies/tried.html", {"tried": tried})
        is_wrong = bool(tried.problems or tried.form.errors)
        context = self.about(row) | {"tried": tried}
        return self.page("policies/policy.html", context, status=422 if is_wrong else 200)


def status_of(row: Any, spec: GuardrailPolicySpec) -> tuple[str, str]:
    """Kind of status and words for what a policy does, of a row ``with_state``."""
    if row.active is None:
        return summaries.state_of(row)
    return ("ok", "In force") if spec.enabled else ("idle", "Off")


def rollout_of(row: Any) -> tuple[str, str] | None:
    """The same of a rollout that is under way or was stopped, beside what is in force."""
    if row.active is None or row.stage in (Stage.COMPLETE, Stage.ROLLED_BACK):
        return None
    return summaries.state_of(row)


def _stages(spec: GuardrailPolicySpec) -> list[str]:
    """Where any of its rules looks."""
    named = {stage for rule in spec.rules for stage in rule.stages or ["request"]}
    return [stage for stage in ("request", "response", "stream") if stage in named]
