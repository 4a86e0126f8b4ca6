"""How near candidates are to the endpoint of the request's earlier stage.

Two endpoints are near at a level when they have the same name there (the same host, rack, zone, region) and
differ in no name of a wider level: a rack "r1" of one zone is not the rack "r1" of another. Names are turned
into numbers once for each change of the endpoints' topology, so that a request costs comparisons of arrays.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from dataplane.plugin.base import DataKey
from epp.interfaces.attributes import PEER_ENDPOINT, Topology
from epp.interfaces.endpoint import Candidates, EndpointTable
from epp.interfaces.endpoint_attributes import ObjectColumn
from epp.interfaces.request import InferenceRequest

LEVELS: Final = ("host", "rack", "zone", "region")
"""From near to far; the nearness of an endpoint is an index, ``len(LEVELS)`` = no level in common."""

Places = NDArray[np.int64]


class Nearness:
    """Nearness by one topology attribute. Owned by one plugin, used on the thread that owns the table."""

    def __init__(self, key: DataKey[Topology]) -> None:
        self._key = key
        self._column: ObjectColumn | None = None
        self._version = -1
        self._places: Places = np.zeros((len(LEVELS), 0), dtype=np.int64)
        """Numbers of the names by level and slot; 0 = no name."""

    def of(self, request: InferenceRequest, candidates: Candidates) -> Places | None:
        """The nearest common level of each candidate; None when the peer or its place is not known."""
        peer = request.get(PEER_ENDPOINT)
        table = candidates.table
        if peer is None or table.generation[peer.slot] != peer.generation or not self._is_current(table):
            return None
        own = self._places[:, peer.slot]
        if not own.any():
            return None
        places = self._places[:, candidates.slots]
        nearest: Places = np.full(len(candidates), len(LEVELS), dtype=np.int64)
        agrees = np.ones(len(candidates), dtype=np.bool_)
        for level in reversed(range(len(LEVELS))):
            same = (places[level] == own[level]) & (own[level] > 0)
            nearest[agrees & same] = level
            agrees &= same | (places[level] == 0) | (own[level] == 0)
        return nearest

    def _is_current(self, table: EndpointTable) -> bool:
        """Whether there are places at all, brought up to date."""
        column = table.attributes.objects(self._key)
        if column is None:
            return False
        stale = column is not self._column or column.version != self._version
        if stale or self._places.shape[1] != len(column.values):
            self._read(column)
        return True

    def _read(self, column: ObjectColumn) -> None:
        numbers: dict[tuple[int, str], int] = {}
        self._places = np.zeros((len(LEVELS), len(column.values)), dtype=np.int64)
        for slot, topology in enumerate(column.values):
            if isinstance(topology, Topology):
                for level, name in enumerate(msgspec.structs.astuple(topology)):
                    if name:
                        self._places[level, slot] = numbers.setdefault((level, name), len(numbers) + 1)
        self._column, self._version = column, column.version
