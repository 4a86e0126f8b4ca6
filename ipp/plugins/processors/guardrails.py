"""``guardrails``: the policies in force, on requests, answers and streams.

What a policy blocks ends with its public message and a stable code. What it masks goes on masked, and comes
back in the answer to the same caller where the policy says so. A body that cannot be looked into while a
policy holds for it is refused, so nothing passes unseen; without a policy nothing is looked at.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from functools import partial
from time import perf_counter, thread_time
from typing import Annotated, ClassVar, Final, NamedTuple

import msgspec

from dataplane.errors import ConfigError, RequestError, ServiceUnavailableError
from dataplane.extproc.events import BodyTransform
from dataplane.headers import ACCEPT_ENCODING, CONTENT_ENCODING, MODEL_NAME_REWRITE, REQUEST_ID
from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from ipp.guardrails.asking import ask
from ipp.guardrails.bench import Bench
from ipp.guardrails.engine import CompiledPolicy
from ipp.guardrails.masking import Vault
from ipp.guardrails.matches import Facts
from ipp.guardrails.rules.fields import model_in_path
from ipp.guardrails.verdicts import UNREADABLE, Outcome, Verdict
from ipp.interfaces.counting import TokenCounter, TokensOf
from ipp.interfaces.handle import Handle
from ipp.interfaces.message import RequestMessage, ResponseMessage
from ipp.plugins.header_names import MAX_VALUE_BYTES, check_header_name
from ipp.policies import PoolPlace

MAX_POOLS: Final = 10_000
SERVER_ERRORS: Final = 500
"""From this status on."""


class GuardrailsParams(PluginParams, frozen=True, kw_only=True):
    """Which policies there are is said by ``--policies-file`` or the control plane."""

    pools: Annotated[list[PoolPlace], msgspec.Meta(max_length=MAX_POOLS)] = msgspec.field(
        default_factory=list
    )
    """Pools by which policies may choose, without a control plane that knows them."""
    verdict_header: Annotated[str, msgspec.Meta(max_length=128)] = ""
    """Header of answers that names the rules which found something in the request: ``POLICY/RULE=ACTION``.
    Empty = clients are not told."""

    def __post_init__(self) -> None:
        if self.verdict_header:
            check_header_name(self.verdict_header, "verdictHeader")


class RefusedError(RequestError):
    """A guardrail ends the request."""

    code = "Guardrail"
    status = 400
    error_type = "invalid_request_error"

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.message, param=outcome.param or None, error_code=outcome.code)
        self.status = outcome.status  # type: ignore[misc]  # each refusal has its own
        if outcome.status >= SERVER_ERRORS:
            self.error_type = RequestError.error_type  # type: ignore[misc]  # nothing is wrong with the request


def _facts(request: RequestMessage, tokens: int | None) -> Facts:
    headers = request.headers
    return Facts(tokens, headers.get(":path"), headers.control(MODEL_NAME_REWRITE))


class _Held(NamedTuple):
    """What holds for an exchange."""

    policy: CompiledPolicy
    vault: Vault | None
    model: str
    fired: str = ""
    """Rules that found something in the request, as clients are told."""


class Guardrails:
    """Selects by tenant, model and pool, once for each request."""

    info: ClassVar = PluginInfo("guardrails", GuardrailsParams)
    needs_request_body: ClassVar[bool] = True

    def __init__(self, name: TypedName, params: GuardrailsParams, handle: Handle) -> None:
        """``ConfigError`` when there is no source of policies."""
        if not handle.has_policies:
            raise ConfigError(
                "there are no policies: neither --policies-file nor --xds-server says from where"
            )
        self.name = name
        self._policies = handle.policies
        self._verdicts = handle.verdicts
        self.pools = params.pools
        self._header = params.verdict_header.lower()
        self._bench = Bench()

    async def start(self) -> None:
        """Make the pools of the parameters known."""
        if self.pools:
            self._policies.know_pools(self.pools)

    async def close(self) -> None:
        """Nothing is held."""

    @property
    def is_idle(self) -> bool:
        """Whether no policy can hold for anything; a request waits for policies nobody knows yet."""
        current = self._policies.current
        return current is not None and current.is_empty

    def sees_response(self, request: RequestMessage) -> bool:
        """Whether a policy holds for the request."""
        return self.name in request.state

    def process_request(self, request: RequestMessage) -> Awaitable[None] | None:
        """Let it pass, mask it, or raise what refuses it."""
        model = request.model.strip() or model_in_path(request.headers.get(":path"))
        policy = self._policy(request, model)
        if policy is None:
            return None
        if policy.needs_response or policy.needs_stream:
            request.remove_header(ACCEPT_ENCODING)
        counter: TokenCounter | None = request.state.get(TokensOf) if policy.counts_tokens else None
        if policy.pace.is_long(request.body) or policy.asked["request"] or counter is not None:
            return self._check_aside(request, policy, model, counter)
        self._settle(request, policy, self._check(request, policy, None), model)
        return None

    def _policy(self, request: RequestMessage, model: str) -> CompiledPolicy | None:
        """What holds for a request for this model; None when nothing does."""
        current, pools, base_model = self._policies.current, self._policies.pools, request.base_model
        if current is None:
            raise ServiceUnavailableError("the guardrail policies are not known yet; try again")
        pool = pools.pool_of(model) or (pools.pool_of(base_model) if base_model else "")
        served = pools.served_as(pool, model)
        if asked := request.headers.control(MODEL_NAME_REWRITE):
            served = (*served, asked)
        return current.select(request.tenant, model, pool, base_model, served)

    def _check(self, request: RequestMessage, policy: CompiledPolicy, tokens: int | None) -> Outcome:
        started, cpu_started = perf_counter(), thread_time()
        outcome = policy.check_request(request.body, _facts(request, tokens))
        self._verdicts.took("request", perf_counter() - started)
        policy.pace.took(len(request.body), thread_time() - cpu_started)
        return outcome

    async def _check_aside(
        self, request: RequestMessage, policy: CompiledPolicy, model: str, counter: TokenCounter | None
    ) -> None:
        """Look at a large body beside the event loop, so that others need not wait; then ask who is asked."""
        tokens = None if counter is None else await counter.count_tokens(request)
        if policy.pace.is_long(request.body):
            look = partial(self._check, request, policy, tokens)
            outcome = await self._bench.run(look, len(request.body))
        else:
            outcome = self._check(request, policy, tokens)
        if policy.asked["request"] and outcome.action != "block":
            outcome = await ask(policy, "request", outcome)
        self._settle(request, policy, outcome, model)

    def _settle(self, request: RequestMessage, policy: CompiledPolicy, outcome: Outcome, model: str) -> None:
        if outcome.verdicts:
            self._tell(request, model, outcome.verdicts)
        if outcome.action == "block":
            raise RefusedError(outcome)
        request.replace_body(outcome.body)
        fired = told(outcome.verdicts) if self._header and outcome.verdicts else ""
        request.state[self.name] = _Held(policy, outcome.vault, model, fired)

    def _tell(self, request: RequestMessage, model: str, verdicts: Sequence[Verdict]) -> None:
        pool = self._policies.pools.pool_of(model)
        self._verdicts.tell(request.headers.get(REQUEST_ID), request.tenant, model, pool, verdicts)

    def expect_answer(self, request: RequestMessage) -> None:
        """A request without a body may be answered with what was said before: its answer is looked at."""
        policy = self._policy(request, "")
        if policy is not None and (policy.needs_response or policy.needs_stream):
            request.remove_header(ACCEPT_ENCODING)
            request.state[self.name] = _Held(policy, None, "")

    def refuse_unseen(self, request: RequestMessage) -> None:
        """Refuse it while a policy holds for its tenant."""
        policy = self._policy(request, "")
        if policy is not None and policy.needs_request:
            raise _unseen("requests", "request")

    def process_response(self, request: RequestMessage, response: ResponseMessage) -> BodyTransform | None:
        """What the answer passes through, if anything has to see it."""
        held: _Held | None = request.state.get(self.name)
        if held is None:
            return None
        if held.fired:
            response.set_header(self._header, held.fired)
        if response.end_of_stream:
            return None
        transform = held.policy.open_answer(
            "sse" if response.is_event_stream else "json",
            held.vault,
            partial(self._tell, request, held.model),
            self._bench,
        )
        if transform is None:
            return None
        if not response.is_shown and held.policy.looks_at_answers:
            raise _unseen("answers", "response")
        encoding = response.headers.get(CONTENT_ENCODING).lower()
        if encoding not in {"", "identity"}:
            outcome = Outcome(
                action="block",
                body=b"",
                status=502,
                code=UNREADABLE,
                message=f"The answer is encoded as {encoding[:40]}, and guardrails could not look into it.",
            )
            raise RefusedError(outcome)
        return transform


def _unseen(what: str, way: str) -> RefusedError:
    """What an operator has to mend."""
    message = (
        f"The gateway does not show the bodies of {what} to guardrails that have to look at them; "
        f"its {way}_body_mode must be FULL_DUPLEX_STREAMED."
    )
    return RefusedError(Outcome(action="block", body=b"", status=500, code=UNREADABLE, message=message))


def told(verdicts: Sequence[Verdict]) -> str:
    """Each rule once with what it did, in the order in which they fired, as far as a header has room."""
    names = dict.fromkeys(f"{each.policy}/{each.rule}={each.action}" for each in verdicts)
    said = ", ".join(names)
    return said if len(said) <= MAX_VALUE_BYTES else said[: said.rindex(", ", 0, MAX_VALUE_BYTES)]
