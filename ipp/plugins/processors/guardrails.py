"""``guardrails``: the policies in force, on requests, answers and streams.

What a policy blocks ends with its public message and a stable code. What it masks goes on masked, and comes
back in the answer to the same caller where the policy says so. A body that cannot be looked into while a
policy holds for it is refused, so nothing passes unseen; without a policy nothing is looked at.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from functools import partial
from time import perf_counter
from typing import Annotated, ClassVar, Final, NamedTuple

import msgspec

from dataplane.errors import ConfigError, RequestError, ServiceUnavailableError
from dataplane.extproc.events import BodyTransform
from dataplane.headers import ACCEPT_ENCODING, CONTENT_ENCODING, REQUEST_ID
from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from ipp.guardrails.asking import ask
from ipp.guardrails.engine import CompiledPolicy
from ipp.guardrails.masking import Vault
from ipp.guardrails.matches import Facts
from ipp.guardrails.verdicts import UNREADABLE, Outcome, Verdict
from ipp.interfaces.handle import Handle
from ipp.interfaces.message import RequestMessage, ResponseMessage
from ipp.policies import PoolPlace

MAX_POOLS: Final = 10_000


class GuardrailsParams(PluginParams, frozen=True, kw_only=True):
    """Which policies there are is said by ``--policies-file`` or the control plane."""

    pools: Annotated[list[PoolPlace], msgspec.Meta(max_length=MAX_POOLS)] = msgspec.field(
        default_factory=list
    )
    """Pools by which policies may choose, without a control plane that knows them."""


class RefusedError(RequestError):
    """A guardrail ends the request."""

    code = "Guardrail"
    status = 400
    error_type = "invalid_request_error"

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.message, param=outcome.param or None, error_code=outcome.code)
        self.status = outcome.status  # type: ignore[misc]  # each refusal has its own


class _Held(NamedTuple):
    """What holds for an exchange."""

    policy: CompiledPolicy
    vault: Vault | None
    model: str


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

    async def start(self) -> None:
        """Make the pools of the parameters known."""
        if self.pools:
            self._policies.know_pools(self.pools)

    async def close(self) -> None:
        """Nothing is held."""

    def process_request(self, request: RequestMessage) -> Awaitable[None] | None:
        """Let it pass, mask it, or raise what refuses it."""
        current = self._policies.current
        if current is None:
            raise ServiceUnavailableError("the guardrail policies are not known yet; try again")
        model = request.model
        policy = current.select(request.tenant, model, self._policies.pools.pool_of(model))
        if policy is None:
            return None
        if policy.needs_response or policy.needs_stream:
            request.remove_header(ACCEPT_ENCODING)
        started = perf_counter()
        outcome = policy.check_request(request.body, Facts(path=request.headers.get(":path")))
        self._verdicts.took("request", perf_counter() - started)
        if policy.asked["request"] and outcome.action != "block":
            return self._ask(request, policy, outcome, model)
        self._settle(request, policy, outcome, model)
        return None

    async def _ask(
        self, request: RequestMessage, policy: CompiledPolicy, outcome: Outcome, model: str
    ) -> None:
        self._settle(request, policy, await ask(policy, "request", outcome), model)

    def _settle(self, request: RequestMessage, policy: CompiledPolicy, outcome: Outcome, model: str) -> None:
        if outcome.verdicts:
            self._tell(request, model, outcome.verdicts)
        if outcome.action == "block":
            raise RefusedError(outcome)
        request.replace_body(outcome.body)
        request.state[self.name] = _Held(policy, outcome.vault, model)

    def _tell(self, request: RequestMessage, model: str, verdicts: Sequence[Verdict]) -> None:
        self._verdicts.tell(request.headers.get(REQUEST_ID), request.tenant, model, verdicts)

    def process_response(self, request: RequestMessage, response: ResponseMessage) -> BodyTransform | None:
        """What the answer passes through, if anything has to see it."""
        held: _Held | None = request.state.get(self.name)
        if held is None or response.end_of_stream:
            return None
        transform = held.policy.open_stream(
            "sse" if response.is_event_stream else "json",
            held.vault,
            partial(self._tell, request, held.model),
        )
        if transform is None:
            return None
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
