"""What guardrails say: verdicts for people who watch, outcomes for the exchange, errors for clients.

A verdict tells where something was and of which kind, never what it was; no field of it comes from a text.
Codes and messages that a client sees are part of the interface: ``guardrail_`` and the type of the rule.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from dataplane.config.guardrails import Mode, Rule, Stage
from dataplane.errors import openai_error
from ipp.guardrails.masking import Vault

Action = Literal["pass", "flag", "mask", "block"]

ERROR_TYPE: Final = "invalid_request_error"
BLOCKED_STATUS: Final = 400
"""Of refused requests and withheld answers: clients do not try those again by themselves."""
UNREADABLE: Final = "guardrail_unreadable"
"""Code of a body that cannot be looked into."""
UNAVAILABLE: Final = "guardrail_unavailable"
"""Code when somebody who is asked gives no verdict, and the rule is closed then."""

MAX_VERDICTS: Final = 256
"""Verdicts kept of one exchange; what fires more often is counted only."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One thing a rule found, and what was done about it."""

    policy: str
    rule: str
    type: str
    kind: str
    """What fired, of the rule's vocabulary: ``email``, ``word 17``."""
    stage: Stage
    action: Mode
    path: str = ""
    """The field: ``messages[2].content``; of a stream the one of its events."""
    start: int = 0
    """Code points from the beginning of the field's text; of a stream from the beginning of all of it."""
    end: int = 0
    score: float = 1.0
    latency_us: int = 0
    """What the rule took for the text it found this in."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a body."""

    action: Action
    body: bytes
    """What goes on: the very bytes that came unless something is masked. Blocked: the error's."""
    shown: bytes | None = None
    """What somebody who is asked gets to see, where it is not the body: that with all placeholders in it."""
    verdicts: tuple[Verdict, ...] = ()
    status: int = 200
    """Blocked: the HTTP status, else without meaning."""
    code: str = ""
    """Blocked: the stable code, such as ``guardrail_pii``."""
    message: str = ""
    """Blocked: what the client is told."""
    param: str = ""
    """Blocked: the field at fault."""
    vault: Vault | None = None
    """Of a request: what turns placeholders in its answer back; None when nothing is to be restored."""


class Refusal(msgspec.Struct, frozen=True):
    """Why a client gets no answer, or no more of it."""

    code: str
    message: str
    param: str = ""
    status: int = BLOCKED_STATUS

    def body(self) -> bytes:
        """The error object, in OpenAI's shape."""
        return openai_error(self.message, ERROR_TYPE, self.code, self.param or None)

    def outcome(self, verdicts: tuple[Verdict, ...] = ()) -> Outcome:
        """The outcome that refuses."""
        return Outcome(
            action="block",
            body=self.body(),
            verdicts=verdicts,
            status=self.status,
            code=self.code,
            message=self.message,
            param=self.param,
        )


def refusal_of(rule: Rule, stage: Stage, path: str = "") -> Refusal:
    """What the client is told when this rule blocks."""
    what = "The request is" if stage == "request" else "The answer is"
    message = rule.message or f"{what} against the guardrail '{rule.name}'."
    return Refusal(code_of(rule.type), message, path)


def code_of(rule_type: str) -> str:
    """``promptInjection`` -> ``guardrail_prompt_injection``."""
    return "guardrail_" + re.sub(r"[A-Z]", lambda found: f"_{found[0].lower()}", rule_type)


def unreadable(reason: object, stage: Stage = "request") -> Refusal:
    """What the client is told of a body that cannot be looked into."""
    if stage == "request":
        return Refusal(UNREADABLE, f"The request's body {reason}.")
    return Refusal(
        UNREADABLE, f"The answer's body {reason}, and guardrails could not look into it.", status=502
    )


def action_of(verdicts: Sequence[Verdict]) -> Action:
    """What becomes of what these verdicts are on: the gravest of their actions."""
    actions = {verdict.action for verdict in verdicts}
    for action in ("block", "mask", "flag"):
        if action in actions:
            return action
    return "pass"
