"""Endpoints with their measurements from a file, for decisions that are made without model servers.

The document is what a picker shows under ``/debug/endpoints``, or something shorter by hand:

    endpoints:
    - {address: "10.0.0.1:8000", waiting: 3, kvUsage: 0.4}
    - {address: "10.0.0.2:8000", labels: {llm-d.ai/role: decode}, dataAgeMs: 5000, fresh: false, trust: 0.2}

What is left out is as in an idle server that has just been measured. Fields that are no measurements are
passed over, unless they look like a misspelt one. Of the attributes that plugins leave on endpoints only
numbers are taken. Everything that is wrong is told at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec

from dataplane.addresses import split_host_port
from dataplane.config.decode import decode_struct
from dataplane.config.problems import raise_any
from dataplane.errors import ConfigError, did_you_mean
from dataplane.files import read_regular_file
from dataplane.plugin.base import DataKey
from epp.interfaces.endpoint import MAX_ENDPOINTS, Endpoint, EndpointSpec, EndpointTable
from epp.plugins.endpoint_fields import MAX_ANNOTATION, read_address, read_labels, read_name, read_port, shown
from epp.plugins.endpoint_file import parse_document

MAX_SNAPSHOT_BYTES: Final = 64 << 20

MAX_NUMBER: Final = 1 << 53
"""Largest figure of an endpoint; beyond it whole numbers cannot be told apart."""

Amount = Annotated[float, msgspec.Meta(ge=0, le=float(MAX_NUMBER))]
Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_NUMBER)]


class EndpointState(msgspec.Struct, rename="camel", kw_only=True):
    """One entry of the document."""

    name: str = ""
    """Empty = the address."""
    namespace: str = "default"
    address: str
    labels: dict[str, Any] = {}
    annotations: dict[str, Any] = {}
    models: list[str] = []
    rank: Count = 0
    fresh: bool = True
    trust: Amount = 1.0
    listens: bool = True
    data_age_ms: Amount | None = 0.0
    """None = never measured."""
    waiting: Amount = 0.0
    running: Amount = 0.0
    kv_usage: Amount = 0.0
    inflight: Count = 0
    inflight_tokens: Count = 0
    unseen: Count = 0
    block_size_tokens: Count | None = None
    blocks: Count | None = None
    active_models: list[str] = []
    waiting_models: list[str] = []
    max_active_models: Count = 0
    attributes: dict[str, Any] = {}
    ejection: dict[str, Any] | None = None

    @property
    def is_ejected(self) -> bool:
        """Whether requests are kept away from it."""
        return self.ejection is not None and self.ejection.get("state") == "ejected"


FIELDS: Final = {field.encode_name for field in msgspec.structs.fields(EndpointState)}

COLUMNS: Final = ("waiting", "running", "kv_usage", "inflight", "inflight_tokens", "unseen")


class Snapshot(msgspec.Struct):
    """A document, read. ``states`` are by address."""

    specs: list[EndpointSpec]
    states: dict[str, EndpointState]
    warnings: list[str]


def read_snapshot(path: str) -> Snapshot:
    """The endpoints in a file. ``ConfigErrors`` with everything that is wrong with it."""
    data = read_regular_file(path, MAX_SNAPSHOT_BYTES, path=path)
    document = parse_document(path, data.decode("utf-8", "replace"))
    entries = document.get("endpoints") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise ConfigError("must be a mapping with the list `endpoints`, as /debug/endpoints shows", path=path)
    if len(entries) > MAX_ENDPOINTS:
        raise ConfigError(f"has {len(entries)} endpoints, the most is {MAX_ENDPOINTS}", path=path)
    snapshot, problems = Snapshot([], {}, []), list[ConfigError]()
    for index, entry in enumerate(entries):
        _read_entry(snapshot, entry, f"{path}: endpoints[{index}]", problems)
    raise_any(problems)
    if isinstance(document, dict) and document.get("truncated") is True:
        snapshot.warnings.append(f"{path}: is truncated; ask the page for more with ?limit=")
    return snapshot


def _read_entry(snapshot: Snapshot, entry: object, place: str, problems: list[ConfigError]) -> None:
    if not isinstance(entry, dict):
        problems.append(ConfigError(f"{shown(entry)} is not a mapping with an address", path=place))
        return
    for key in entry:
        hint = did_you_mean(key, FIELDS) if isinstance(key, str) and key not in FIELDS | _SHOWN else ""
        if hint:
            problems.append(ConfigError(f"unknown field{hint}", path=f"{place}.{key}"))
    found = decode_struct({k: v for k, v in entry.items() if k in FIELDS}, EndpointState, place, problems)
    if found is None:
        return
    try:
        spec = _spec(found)
    except ConfigError as error:
        problems.append(error.within(place))
        return
    if spec.key in snapshot.states:
        problems.append(ConfigError(f"{spec.key} is listed before", path=f"{place}.address"))
        return
    snapshot.specs.append(spec)
    snapshot.states[spec.key] = found


_SHOWN: Final = frozenset({"problem", "share", "metricsAddress"})
"""What ``/debug/endpoints`` shows besides."""


def _spec(state: EndpointState) -> EndpointSpec:
    try:
        host, port = split_host_port(state.address)
    except ValueError:
        raise ConfigError(f"{shown(state.address)} is not written as ip:port", path="address") from None
    return EndpointSpec(
        name=read_name(state.name or state.address, "name"),
        namespace=read_name(state.namespace, "namespace"),
        address=read_address(host),
        port=read_port(port),
        labels=read_labels(state.labels),
        annotations=read_labels(state.annotations, "annotations", MAX_ANNOTATION),
        models=tuple(state.models),
        rank=state.rank,
    )


def apply_states(
    table: EndpointTable, states: Mapping[str, EndpointState], now: float, attributes: Sequence[DataKey[Any]]
) -> list[str]:
    """Give the endpoints of a table their measurements; one without is idle and fresh. Returns warnings.

    ``attributes`` are the keys that the configuration's plugins leave on endpoints.
    """
    known = {str(key): key for key in attributes}
    left: set[str] = set()
    for endpoint in table.all().endpoints:
        state = states.get(endpoint.key) or EndpointState(address=endpoint.key)
        _apply(table, endpoint, state, now)
        for name, value in state.attributes.items():
            key = known.get(name)
            if key is None:
                continue
            if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_NUMBER:
                table.attributes.put(endpoint.slot, key, float(value))
            else:
                left.add(name)
    table.warmed_up(math.inf)
    return [f"attribute {name} is not a number and is left out" for name in sorted(left)]


def _apply(table: EndpointTable, endpoint: Endpoint, state: EndpointState, now: float) -> None:
    slot = endpoint.slot
    measured = state.data_age_ms is not None
    for name in COLUMNS:
        getattr(table, name)[slot] = getattr(state, name)
    table.block_size[slot] = state.block_size_tokens or 0
    table.num_blocks[slot] = state.blocks or 0
    endpoint.active_models = frozenset(state.active_models)
    endpoint.waiting_models = frozenset(state.waiting_models)
    endpoint.max_active_models = state.max_active_models
    unseen = table.unseen[slot]
    table.begin_scrape(slot)
    table.end_scrape(slot, now - state.data_age_ms / 1000 if state.data_age_ms is not None else 0.0)
    table.unseen[slot] = table.unseen_next[slot] = unseen
    if not (state.fresh and measured and state.listens):
        table.distrust(slot, gone=not state.listens)
        table.trust[slot] = min(state.trust, 1.0) if measured else 0.0
    if state.is_ejected:
        table.eject(slot)
