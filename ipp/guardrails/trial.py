"""Policies tried on a text or a body, without a client and without traffic: what fires, where, what is left.

Used by the control plane and by ``pointsman guard test``. Rules of which somebody else judges are named and
not run: nobody outside is asked about what a person pastes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final
from urllib.parse import quote

import msgspec

from dataplane.config.guardrails import GuardrailPolicySpec, Stage
from dataplane.errors import ConfigError
from dataplane.extproc.events import EndBody
from ipp.guardrails.engine import CompiledPolicy
from ipp.guardrails.masking import Vault
from ipp.guardrails.matches import Facts
from ipp.guardrails.policies import Policies
from ipp.guardrails.rules import is_pure
from ipp.guardrails.trial_shapes import SHAPES, Dialect, Shape
from ipp.guardrails.verdicts import Action, Outcome, Verdict, action_of

MAX_TEXT: Final = 200_000
"""Code points of a text, and bytes of a body, that are tried at a time."""
PATHS: Final[Mapping[Dialect, str]] = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
    "gemini": "/v1beta/models/{model}:generateContent",
    "embeddings": "/v1/embeddings",
}
"""Where requests of each API go."""
EVENT_CHARACTERS: Final = 7
"""Of a text that is tried as a stream, in each event."""


class Trial(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, rename="camel"):
    """What is tried; a text or a body."""

    text: Annotated[str, msgspec.Meta(max_length=MAX_TEXT)] | None = None
    """Of a user, or of an assistant in the stages of answers."""
    body: dict[str, Any] | None = None
    """A whole request, or a whole answer."""
    stage: Stage = "request"
    dialect: Dialect = "chat"
    """The API whose request or answer holds a text; a body says itself which it is, but for where it goes."""
    request: dict[str, Any] | None = None
    """Of an answer: the request that it is to, whose placeholders and schema count."""
    tenant: Annotated[str, msgspec.Meta(max_length=253)] = ""
    model: Annotated[str, msgspec.Meta(max_length=256)] = ""
    """Empty = the body's."""
    pool: Annotated[str, msgspec.Meta(max_length=253)] = ""

    def __post_init__(self) -> None:
        if (self.text is None) == (self.body is None):
            raise ConfigError("give one of text and body", path="text")
        if self.body is not None and self.stage == "stream":
            raise ConfigError("is no stage of a body; give a text", path="stage")
        if self.request is not None and self.stage == "request":
            raise ConfigError("goes with an answer; choose stage response or stream", path="request")
        if SHAPES[self.dialect].answer is None and self.stage != "request":
            raise ConfigError(f"answers of {self.dialect} hold no text", path="dialect")


class Elsewhere(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A policy that did not count, and the traffic that it is for."""

    policy: str
    is_off: bool = False
    tenants: list[str] | None = None
    models: list[str] | None = None
    pools: list[str] | None = None


class TrialResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What came of it."""

    action: Action
    code: str = ""
    """Blocked: what the client is told, as a stable code."""
    message: str = ""
    """Blocked: the same for people."""
    status: int = 200
    """The HTTP status the client gets; a stream's has been sent before its text is looked at."""
    error: Any = None
    """Blocked: the whole error the client gets, a JSON body or the last event but the end."""
    text: str | None = None
    """What is left of the text; None when it is blocked, or a body was tried."""
    body: Any = None
    """What is left of the body; None when it is blocked, or a text was tried."""
    verdicts: tuple[Verdict, ...] = ()
    not_run: tuple[str, ...] = ()
    """Rules that ask somebody else."""
    elsewhere: tuple[Elsewhere, ...] = ()
    """Policies that did not count, because they are off or for other traffic."""


def run_trial(documents: Sequence[tuple[str, GuardrailPolicySpec]], trial: Trial) -> TrialResult:
    """Try policies by name. ``ConfigErrors`` when one of them cannot be compiled."""
    return run_compiled(Policies(documents), documents, trial)


def run_compiled(
    policies: Policies, documents: Sequence[tuple[str, GuardrailPolicySpec]], trial: Trial
) -> TrialResult:
    """The same with policies that are compiled already, for many trials."""
    body = trial.body or {}
    model = trial.model or str(body.get("model") or (trial.request or {}).get("model") or "")
    policy = policies.select(trial.tenant, model, trial.pool)
    holding = policies.holding(trial.tenant, model, trial.pool)
    asked = tuple(
        f"{name}/{rule.name}"
        for name, spec in documents
        for rule in spec.rules
        if name in holding and not is_pure(rule) and trial.stage in (rule.stages or ["request"])
    )
    if policy is None:
        found = TrialResult(action="pass", text=trial.text, body=trial.body, not_run=asked)
    else:
        found = _run(policy, trial, model, asked)
    elsewhere = tuple(_elsewhere(name, spec) for name, spec in documents if name not in holding)
    return msgspec.structs.replace(found, elsewhere=elsewhere)


def _elsewhere(name: str, spec: GuardrailPolicySpec) -> Elsewhere:
    return Elsewhere(
        policy=name, is_off=not spec.enabled, tenants=spec.tenants, models=spec.models, pools=spec.pools
    )


def _run(policy: CompiledPolicy, trial: Trial, model: str, asked: tuple[str, ...]) -> TrialResult:
    """What holds, tried."""
    body = trial.body or {}
    shape = SHAPES[trial.dialect]
    if trial.stage == "stream":
        return _streamed(policy, shape, trial.text or "", _vault(policy, trial, model), asked)
    is_text = trial.text is not None
    raw = json.dumps(_wrapped(trial, shape) if is_text else body).encode()
    is_request = trial.stage == "request"
    if is_request:
        outcome = policy.check_request(raw, _facts(trial, model))
    else:
        outcome = policy.check_response(raw, _vault(policy, trial, model))
    read = None if not is_text else shape.asked if is_request else shape.said
    return _result(outcome, asked, read)


def _facts(trial: Trial, model: str) -> Facts:
    return Facts(path=PATHS[trial.dialect].format(model=quote(model, safe="") or "any"))


def _vault(policy: CompiledPolicy, trial: Trial, model: str) -> Vault | None:
    """What is kept of the request for its answer."""
    if trial.request is None:
        return None
    return policy.check_request(json.dumps(trial.request).encode(), _facts(trial, model)).vault


def _wrapped(trial: Trial, shape: Shape) -> dict[str, Any]:
    text = trial.text or ""
    if trial.stage == "request":
        return {"model": trial.model or "m", **shape.request(text)}
    return {} if shape.answer is None else shape.answer(text)


def _result(
    outcome: Outcome, asked: tuple[str, ...], read: Callable[[dict[str, Any]], str] | None
) -> TrialResult:
    """``read`` finds a text that was tried; None when a body was."""
    is_blocked = outcome.action == "block"
    left: Any = None if is_blocked else json.loads(outcome.body)
    return TrialResult(
        action=outcome.action,
        code=outcome.code,
        message=outcome.message,
        status=outcome.status,
        error=json.loads(outcome.body) if is_blocked else None,
        text=None if read is None or left is None else read(left),
        body=None if read is not None else left,
        verdicts=outcome.verdicts,
        not_run=asked,
    )


def _streamed(
    policy: CompiledPolicy, shape: Shape, text: str, vault: Vault | None, asked: tuple[str, ...]
) -> TrialResult:
    """The text in events of its API, and what a client would have put together of them."""
    verdicts: list[Verdict] = []
    guard = policy.open_stream("sse", vault, verdicts.extend)
    if guard is None:
        return TrialResult(action="pass", text=text, not_run=asked)
    sent = b""
    try:
        for event in _events(text, shape):
            sent += guard.feed(event, False)
        sent += guard.feed(b"data: [DONE]\n\n", True)
        is_cut = False
    except EndBody as cut:
        sent, is_cut = sent + cut.last, True
    found = [json.loads(line[6:]) for line in sent.split(b"\n") if line.startswith(b"data: {")]
    told = next((event for event in found if "error" in event or event.get("type") == "error"), None)
    error: Mapping[str, Any] = {} if told is None else told.get("error") or told
    action: Action = "block" if is_cut else action_of(verdicts)
    return TrialResult(
        action=action,
        code=str(error.get("code") or ""),
        message=error.get("message") or "",
        error=told,
        text="".join(shape.heard(event) for event in found),
        verdicts=tuple(verdicts),
        not_run=asked,
    )


def _events(text: str, shape: Shape) -> Iterator[bytes]:
    yield from map(_event, shape.before)
    for at in range(0, len(text), EVENT_CHARACTERS):
        yield _event(shape.event(text[at : at + EVENT_CHARACTERS]))
    yield from map(_event, shape.after)


def _event(data: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"
