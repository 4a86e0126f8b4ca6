"""Keeps objects and the configuration equal to what a control plane says of the pool and of this picker.

The last good set is on disk: a picker starts from it at once, and asks the control plane for what is newer
while it serves. Without one it waits for the control plane for a moment, and then goes on without objects.
Loaded only by a picker that is given a control plane, because grpc comes with it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from dataplane.aside import aside
from dataplane.config.given import read_set
from dataplane.errors import ConfigError
from dataplane.observability.exposition import MetricSet
from dataplane.xds.client import XdsClient
from dataplane.xds.codec import unwrapped
from dataplane.xds.messages import PICKER_CONFIG, POOL_OBJECTS, Node
from dataplane.xds.store import Store
from dataplane.xds.subscriber import Held, Subscriber
from dataplane.xds.transport import AdsStream, ServerAddress
from epp.objects.documents import Scope
from epp.objects.files import Reading
from epp.objects.keeping import MAX_SAID, ObjectKeeper
from epp.objects.received import read_received
from epp.objects.schema import POOL_GROUP
from epp.objects.snapshot import ObjectHolder, PoolObjects
from epp.objects.source import TakeConfiguration

log = logging.getLogger(__name__)

FIRST_WAIT_S: Final = 3.0
"""How long a start without anything on disk waits for the control plane."""

Judged = tuple[Reading, PoolObjects | None, list[ConfigError]]


class ObjectReceiver:
    """Owns what is in the holder. ``load`` comes first."""

    def __init__(
        self,
        server: ServerAddress,
        node: Node,
        cache: str,
        holder: ObjectHolder,
        metrics: MetricSet,
        take: TakeConfiguration,
        *,
        rng: random.Random,
        first_wait_s: float = FIRST_WAIT_S,
    ) -> None:
        self._server = server
        self._node = node
        self._store = Store(cache, node.cluster) if cache else None
        self._scope = Scope(node.cluster, POOL_GROUP)
        self._keeper = ObjectKeeper(holder, metrics)
        self._take = take
        self._rng = rng
        self._first_wait_s = first_wait_s
        self._client: XdsClient | None = None
        self._cache_failure = ""
        metrics.computed(
            "pointsman_epp_control_plane_connected",
            "Whether the picker hears the control plane: 1 or 0.",
            (),
            lambda: [((), float(self._client is not None and self._client.connected))],
        )

    async def load(self) -> None:
        """Take what is on disk and begin to listen. ``ConfigError`` for what an operator must mend."""
        await aside(self._server.check)
        held = await self._cached()
        wanted = (self._node.cluster,)
        subscriber = Subscriber(self._node, {POOL_OBJECTS: wanted, PICKER_CONFIG: wanted}, held)
        self._client = XdsClient(
            subscriber, lambda: AdsStream.open(self._server), self._judge, self._store, rng=self._rng
        )
        self._client.start()
        if held:
            versions = ", ".join(str(each.version) for each in held.values())
            log.info("starting with what the control plane sent last, versions %s from disk", versions)
            return
        try:
            await asyncio.wait_for(self._client.heard.wait(), self._first_wait_s)
        except TimeoutError:
            log.warning("the control plane has said nothing yet: serving without it until it does")

    async def _cached(self) -> Mapping[str, Held]:
        """What is on disk and still good, put into use."""
        store = self._store
        if store is None:
            return {}
        try:
            found = await aside(store.load)
        except ConfigError as error:
            self._cache_failure = str(error)
            log.warning("starting without the last good objects: --xds-cache %s", error)
            return {}
        kinds = [kind for kind in (PICKER_CONFIG, POOL_OBJECTS) if kind in found]
        return {kind: found[kind] for kind in kinds if not await self._judge(kind, found[kind])}

    async def _judge(self, type_url: str, held: Held) -> Sequence[ConfigError]:
        """Put a set into use, or say what is wrong with it."""
        if type_url == PICKER_CONFIG:
            return await self._configure(held)
        earlier = self._keeper.reading
        try:
            reading, snapshot, problems = await aside(lambda: self._read(held, earlier))
        except Exception as error:  # a defect of ours must not end the conversation; the set is refused
            log.exception("reading what the control plane sent failed; the objects there are stay")
            self._keeper.refuse("failed", [f"internal error: {error}"])
            return [ConfigError(f"internal error: {type(error).__name__}")]
        if problems:
            self._keeper.refuse("refused", [f"{held.version}: {problem}" for problem in problems[:MAX_SAID]])
            return problems
        self._keeper.apply(reading, snapshot)
        return ()

    async def _configure(self, held: Held) -> Sequence[ConfigError]:
        """Run the configuration of a set; that of the flags when the control plane has none."""
        if not held.resources:
            return await self._take(None)
        try:
            payload = unwrapped(held.resources[0].value)
            given = read_set(payload)
        except ConfigError as error:
            return [error]
        return await self._take(given)

    def _read(self, held: Held, earlier: Reading) -> Judged:
        named = [each for each in held.resources if each.name == self._node.cluster]
        if len(named) != 1 or len(held.resources) != 1:
            return Reading(), None, [ConfigError(f"are not those of the pool {self._node.cluster} alone")]
        try:
            payload = unwrapped(named[0].value)
        except ConfigError as error:
            return Reading(), None, [error]
        reading, problems = read_received(payload, self._scope)
        if problems or (earlier.objects == reading.objects and self._keeper.applied_at):
            return reading, None, problems
        return reading, PoolObjects(reading.objectives(), reading.rewrites()), []

    async def reload(self) -> list[str]:
        """Nothing is to be read: the control plane sends what changes. What is wrong with the last set."""
        return list(self._keeper.problems[:MAX_SAID])

    def watch(self) -> None:
        """It listens already."""

    async def stop(self) -> None:
        """Listen no longer; the objects stay."""
        if self._client is not None:
            await self._client.stop()

    def describe(self, limit: int, ports: Iterable[int] = ()) -> dict[str, Any]:
        """As ``ObjectKeeper.describe``, and how the conversation with the control plane goes."""
        told = {} if self._client is None else self._client.describe()
        control_plane = {"server": self._server.target, "node": self._node.id, **told}
        if self._cache_failure:
            control_plane["cacheFailure"] = self._cache_failure
        return {**self._keeper.describe(limit, ports), "controlPlane": control_plane}
