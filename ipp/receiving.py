"""Keeps configuration and policies equal to what a control plane says of this processor.

The last good sets are on disk: a processor starts from them at once, and asks for what is newer while it
serves. Without one it waits for the control plane for a moment; until policies are known a configuration that
asks for them refuses requests, so nothing passes unseen. Loaded only by a processor that is given a control
plane, because grpc comes with it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from dataplane.aside import aside
from dataplane.config.decode import decode_struct
from dataplane.config.given import Given, read_set
from dataplane.config.guardrails import GuardrailPolicySpec
from dataplane.errors import ConfigError
from dataplane.observability.exposition import MetricSet
from dataplane.xds.client import XdsClient
from dataplane.xds.codec import unwrapped
from dataplane.xds.messages import GUARDRAILS, PROCESSOR_CONFIG, Node
from dataplane.xds.store import Store
from dataplane.xds.subscriber import Held, Subscriber
from dataplane.xds.transport import AdsStream, ServerAddress
from ipp.options import IppOptions
from ipp.policies import MAX_POLICIES, PolicyHolder, PoolPlace

log = logging.getLogger(__name__)

FIRST_WAIT_S: Final = 3.0
"""How long a start without anything on disk waits for the control plane."""
TYPES: Final = (GUARDRAILS, PROCESSOR_CONFIG)
"""In the order in which they are put into use: a configuration may ask for policies."""

TakeConfiguration = Callable[[Given | None], Awaitable[Sequence[ConfigError]]]


class _Named(msgspec.Struct, frozen=True):
    """A policy as it is sent."""

    name: str
    spec: msgspec.Raw
    revision: int = 0
    """0 = a control plane that knows no revisions of policies."""


class _Sent(msgspec.Struct, frozen=True):
    """What is sent of guardrails."""

    policies: list[_Named]
    pools: list[PoolPlace] = []


class Receiver:
    """Owns what the control plane says. ``load`` comes first."""

    def __init__(
        self,
        options: IppOptions,
        holder: PolicyHolder,
        take: TakeConfiguration,
        metrics: MetricSet,
        rng: random.Random,
        version: str = "",
    ) -> None:
        self._server = ServerAddress(
            target=options.xds_server,
            token_file=options.xds_token_file,
            ca_file=options.xds_ca,
            cert_file=options.xds_cert,
            key_file=options.xds_key,
        )
        self._node = Node(options.node_id, options.name, {"component": "ipp", "version": version})
        self._store = Store(options.xds_cache, options.name) if options.xds_cache else None
        self._holder = holder
        self._take = take
        self._rng = rng
        self._client: XdsClient | None = None
        self._cache_failure = ""
        self._specs: list[tuple[str, bytes]] | None = None
        """What is in force, as it was sent."""
        metrics.computed(
            "pointsman_ipp_control_plane_connected",
            "Whether the processor hears the control plane: 1 or 0.",
            (),
            lambda: [((), float(self._client is not None and self._client.connected))],
        )

    async def load(self) -> None:
        """Take what is on disk and begin to listen. ``ConfigError`` for what an operator must mend."""
        await aside(self._server.check)
        held = await self._cached()
        name = (self._node.cluster,)
        subscriber = Subscriber(self._node, dict.fromkeys((PROCESSOR_CONFIG, GUARDRAILS), name), held)
        self._client = XdsClient(
            subscriber, lambda: AdsStream.open(self._server), self._judge, self._store, rng=self._rng
        )
        self._client.start()
        if held:
            return
        try:
            await asyncio.wait_for(self._client.heard.wait(), FIRST_WAIT_S)
        except TimeoutError:
            log.warning("the control plane has said nothing yet: going on without it until it does")

    async def _cached(self) -> Mapping[str, Held]:
        """What is on disk and still good, put into use."""
        if self._store is None:
            return {}
        try:
            found = await aside(self._store.load)
        except ConfigError as error:
            self._cache_failure = str(error)
            log.warning("starting without what was sent last: --xds-cache %s", error)
            return {}
        kinds = [kind for kind in TYPES if kind in found]
        return {kind: found[kind] for kind in kinds if not await self._judge(kind, found[kind])}

    async def _judge(self, type_url: str, held: Held) -> Sequence[ConfigError]:
        """Put a set into use, or say what is wrong with it."""
        named = [each for each in held.resources if each.name == self._node.cluster]
        if len(named) != len(held.resources) or len(named) > 1:
            return [ConfigError(f"is not that of the processor {self._node.cluster} alone")]
        try:
            payload = unwrapped(named[0].value) if named else b""
            if type_url == PROCESSOR_CONFIG:
                return await self._take(read_set(payload) if named else None)
            problems = await aside(lambda: self._put(payload, str(held.version)))
            self._holder.refused = [str(problem) for problem in problems]
            return problems
        except ConfigError as error:
            return [error]

    def _put(self, payload: bytes, version: str) -> list[ConfigError]:
        """Put policies in force; what is wrong with them, in which case nothing has changed."""
        if not payload:
            return [ConfigError("says nothing of policies")]
        try:
            sent = msgspec.json.decode(payload, type=_Sent)
        except (msgspec.DecodeError, RecursionError) as error:
            return [ConfigError(f"is no set of policies: {error}")]
        problems: list[ConfigError] = []
        if len(sent.policies) > MAX_POLICIES:
            return [ConfigError(f"has more than {MAX_POLICIES} policies", path="policies")]
        revisions = {each.name: each.revision for each in sent.policies}
        specs = [(each.name, bytes(each.spec)) for each in sent.policies]
        if specs == self._specs and self._holder.current is not None:
            # Revisions or pools are others, and no rule: nothing is compiled anew.
            self._holder.put(self._holder.current, revisions, version, sent.pools, revisions)
            return []
        documents = _decoded(specs, problems)
        policies = None if problems else self._holder.judge(documents, problems)
        if policies is None:
            return problems
        self._holder.put(policies, revisions, version, sent.pools, revisions)
        self._specs = specs
        log.info("guardrail policies in force: %d, version %s", len(documents), version)
        return []

    async def stop(self) -> None:
        """Listen no longer; what is in use stays."""
        if self._client is not None:
            await self._client.stop()

    def describe(self) -> dict[str, Any]:
        """JSON-able: how the conversation with the control plane goes."""
        told = {} if self._client is None else self._client.describe()
        found = {"server": self._server.target, "node": self._node.id, **told}
        return found | ({"cacheFailure": self._cache_failure} if self._cache_failure else {})


def _decoded(
    specs: Sequence[tuple[str, bytes]], problems: list[ConfigError]
) -> list[tuple[str, GuardrailPolicySpec]]:
    """The policies; what is wrong with them has their names in its paths."""
    documents = []
    for name, text in specs:
        try:
            raw = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            problems.append(ConfigError(f"cannot be read: {error}", path=f"{name}.spec"))
            continue
        spec = decode_struct(raw, GuardrailPolicySpec, f"{name}.spec", problems)
        if spec is not None:
            documents.append((name, spec))
    return documents


def kept_configuration(options: IppOptions) -> Given | None:
    """The control plane's last good configuration on disk, if there is any. Blocks."""
    if not options.xds_cache:
        return None
    try:
        held = Store(options.xds_cache, options.name).load().get(PROCESSOR_CONFIG)
        named = [] if held is None else [each for each in held.resources if each.name == options.name]
        return read_set(unwrapped(named[0].value)) if named else None
    except ConfigError as error:
        log.warning("starting without the last configuration of the control plane: %s", error)
        return None
