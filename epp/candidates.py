"""From the pool, a subset hint and screeners to the candidates of one request.

The hint is metadata of the request phase: a list of ``ip:port`` under the subset namespace, or the comma
string that header-to-metadata filters produce. A bare IP means all its ports. Key absent: the whole pool;
key present: only what it names, so an empty or unmatched hint leaves nobody.

An endpoint whose server is known to be gone (its port refuses connections) is no candidate while another one
is left: discovery may take a while to hear of it, and a dead server looks idle. Nor is one that is ejected
because it fails requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from dataplane.extproc.events import Metadata
from dataplane.headers import DESTINATION_ENDPOINT_SUBSET, SUBSET_NAMESPACE
from epp.interfaces.endpoint import Candidates, EndpointTable


def locate(table: EndpointTable, metadata: Metadata | None, *, ejected_too: bool = False) -> Candidates:
    """Candidates of a request with this metadata."""
    return _named(table, metadata).present(ejected_too=ejected_too)


def common(candidates: Candidates, kept: Sequence[Candidates]) -> Candidates:
    """Those of ``candidates`` that are in every set of ``kept``, in their order."""
    for each in kept:
        if each is not candidates:
            candidates = candidates.where(np.isin(candidates.slots, each.slots))
    return candidates


def _named(table: EndpointTable, metadata: Metadata | None) -> Candidates:
    if metadata is None:
        return table.all()
    namespace = metadata.namespace(SUBSET_NAMESPACE)
    if namespace is None or DESTINATION_ENDPOINT_SUBSET not in namespace:
        return table.all()
    return _subset(table, set(_tokens(namespace[DESTINATION_ENDPOINT_SUBSET])))


def _tokens(hint: Any) -> Iterable[str]:
    items = hint if isinstance(hint, list) else [hint]
    for item in items:
        if isinstance(item, str):
            yield from (token for part in item.split(",") if (token := part.strip()))


def _subset(table: EndpointTable, tokens: set[str]) -> Candidates:
    named = {endpoint.slot for token in tokens if (endpoint := table.at(token)) is not None}
    bare = {token.strip("[]") for token in tokens if table.at(token) is None}
    if bare:
        named.update(e.slot for e in table.all().endpoints if e.spec.address in bare)
    pool = table.all()
    return pool.where(np.isin(pool.slots, list(named)))
