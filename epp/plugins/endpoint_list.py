"""The extended form of an endpoints file: host names, ranks, roles, metrics ports, models.

    apiVersion: pointsman.dev/v1
    kind: EndpointList
    resolve: {interval: 10s, timeout: 5s, family: any}
    endpoints:
    - name: a
      address: vllm.example.internal
      ranks: 2
      role: decode
      metrics: {port: 9400, scheme: https}

One entry is one server or one name for several of them, and becomes one endpoint for each address and each
rank. Reading is strict: an entry with any mistake, an unknown field included, is left out, and everything
that is wrong with it is said.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec

from dataplane.addresses import host_port
from dataplane.config.decode import Duration, decode_struct
from dataplane.errors import ConfigError, did_you_mean
from dataplane.resolver import ResolveSettings
from epp.interfaces.endpoint import EndpointSpec
from epp.plugins.endpoint_fields import (
    MAX_ANNOTATION,
    MAX_NAME,
    read_address,
    read_labels,
    read_name,
    read_port,
    shown,
)
from epp.plugins.roles import DECODE_ROLES, ENCODE_ROLES, PREFILL_ROLES, ROLE_LABEL

API_VERSION: Final = "pointsman.dev/v1"
KIND: Final = "EndpointList"

MAX_RANKS: Final = 64
MAX_MODELS: Final = 64
MAX_HOST_NAMES: Final = 1000
"""Different host names of one file."""
MIN_INTERVAL_S: Final = 1.0

ACTIVE_PORTS: Final = ("llm-d.ai/active-ports", "inference.networking.k8s.io/active-ports")
"""Annotations that name the ports in use, by comma; the first one present counts."""

ROLES: Final = sorted(DECODE_ROLES | PREFILL_ROLES | ENCODE_ROLES)

_LABEL = r"[A-Za-z0-9_](?:[-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?"
_HOST_NAME: Final = re.compile(rf"(?:{_LABEL}\.)*{_LABEL}\.?")

T = TypeVar("T")


class ListedServer(msgspec.Struct, frozen=True):
    """One entry, checked."""

    place: str
    """Where it stands: ``endpoints[3]``."""
    spec: EndpointSpec
    """The endpoint it is, or the one from which those it stands for are derived."""
    host: str = ""
    """The host name to resolve; empty when ``spec`` has the address."""
    ports: tuple[tuple[int, int], ...] | None = None
    """(rank, port) of each rank in use; None when the server has no ranks."""
    metrics_port: int = 0
    """Metrics port of rank 0, the others' follow; 0 = the port that serves requests."""

    def specs(self, addresses: Sequence[str]) -> Iterator[EndpointSpec]:
        """The endpoints; ``addresses`` are those of ``host``."""
        for address in addresses if self.host else (self.spec.address,):
            name = f"{self.spec.name}-{address}" if self.host else self.spec.name
            if self.ports is None:
                yield self._spec(name, address, 0, self.spec.port)
            else:
                for rank, port in self.ports:
                    yield self._spec(f"{name}-rank-{rank}", address, rank, port)

    def _spec(self, name: str, address: str, rank: int, port: int) -> EndpointSpec:
        metrics = host_port(address, self.metrics_port + rank) if self.metrics_port else ""
        return msgspec.structs.replace(
            self.spec, name=name, address=address, port=port, rank=rank, metrics_host=metrics
        )


class EndpointListing(msgspec.Struct):
    """What a document in this form says."""

    servers: list[ListedServer]
    problems: list[str]
    resolve: ResolveSettings


class _Section(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A part of the document."""


class _Resolve(_Section, frozen=True):
    """How host names are followed."""

    interval: Duration = Duration(10.0)
    timeout: Duration = Duration(5.0)
    family: Literal["any", "ipv4", "ipv6"] = "any"

    def __post_init__(self) -> None:
        for field, seconds in (("interval", self.interval), ("timeout", self.timeout)):
            if not MIN_INTERVAL_S <= seconds <= 3600:
                raise ConfigError(f"{seconds:g}s is out of range; use 1s to 1h", path=field)


class _Document(_Section, frozen=True, kw_only=True):
    """The document without its entries, which are read one by one."""

    api_version: str
    kind: str
    resolve: _Resolve = _Resolve()
    endpoints: list[Any]


class _Metrics(_Section, frozen=True):
    """Where the server's metrics are."""

    port: int | str | None = None
    scheme: Literal["http", "https"] | None = None


class _Entry(_Section, frozen=True, kw_only=True):
    """One entry as it is written."""

    name: str
    namespace: str = "default"
    address: str
    port: int | str = 8000
    ranks: Annotated[int, msgspec.Meta(ge=1, le=MAX_RANKS)] | None = None
    ports: list[int | str] | None = None
    role: str | None = None
    models: list[str] = msgspec.field(default_factory=list)
    metrics: _Metrics = _Metrics()
    labels: dict[str, Any] = msgspec.field(default_factory=dict)
    annotations: dict[str, Any] = msgspec.field(default_factory=dict)


def is_endpoint_list(document: Mapping[Any, Any]) -> bool:
    """Whether the document is, or means to be, in this form."""
    version = document.get("apiVersion")
    return isinstance(version, str) and version.startswith("pointsman.dev/")


def read_list(path: str, document: Mapping[str, Any]) -> EndpointListing:
    """The entries that count. ``ConfigError`` when the document as a whole cannot be used."""
    for field, only in (("apiVersion", API_VERSION), ("kind", KIND)):
        if document.get(field) != only:
            raise ConfigError(
                f"{field}: {shown(document.get(field))} is not known here; use {only}", path=path
            )
    wrong: list[ConfigError] = []
    listing = list_servers(document, wrong)
    if listing is None:
        raise ConfigError("; ".join(map(str, wrong[:5])), path=path)
    return msgspec.structs.replace(listing, problems=[f"{path}: {problem}" for problem in wrong])


def list_servers(document: Mapping[str, Any], wrong: list[ConfigError]) -> EndpointListing | None:
    """The entries that count, everything else in ``wrong``; None when the document cannot be used."""
    decoded = decode_struct(document, _Document, "", wrong)
    if decoded is None:
        return None
    servers: list[ListedServer] = []
    hosts: set[str] = set()
    for index, entry in enumerate(decoded.endpoints):
        server, complaints = _server(f"endpoints[{index}]", entry)
        wrong += complaints
        if server is None:
            continue
        if len(hosts | {server.host}) > MAX_HOST_NAMES:
            wrong.append(
                ConfigError(f"more than {MAX_HOST_NAMES} names to resolve", path=f"{server.place}.address")
            )
            continue
        if server.host:
            hosts.add(server.host)
        servers.append(server)
    resolve = decoded.resolve
    settings = ResolveSettings(interval_s=resolve.interval, timeout_s=resolve.timeout, family=resolve.family)
    return EndpointListing(servers, [], settings)


def _server(place: str, entry: object) -> tuple[ListedServer | None, list[ConfigError]]:
    """The entry, or everything that is wrong with it."""
    wrong: list[ConfigError] = []
    if not isinstance(entry, dict):
        return None, [ConfigError(f"{shown(entry)} is not a mapping with name and address", path=place)]
    written = decode_struct(entry, _Entry, place, wrong)
    if written is None:
        return None, wrong

    def checked(read: Callable[[], T], default: T) -> T:
        try:
            return read()
        except ConfigError as error:
            wrong.append(error.within(place))
            return default

    annotations = checked(
        lambda: read_labels(written.annotations, "annotations", MAX_ANNOTATION), dict[str, str]()
    )
    address, host = checked(lambda: read_address_or_host(written.address), ("", ""))
    port = checked(lambda: read_port(written.port), 0)
    server = ListedServer(
        place,
        EndpointSpec(
            name=checked(lambda: read_name(written.name, "name"), ""),
            namespace=checked(lambda: read_name(written.namespace, "namespace"), ""),
            address=address,
            port=port,
            labels=checked(lambda: _labels(written), {}),
            metrics_scheme=written.metrics.scheme or "",
            models=checked(lambda: _models(written.models), ()),
            annotations=annotations,
        ),
        host,
        checked(lambda: _ranks(written, port, annotations), None),
        checked(lambda: _metrics_port(written), 0),
    )
    return (None if wrong else server), wrong


def read_address_or_host(text: str) -> tuple[str, str]:
    """Address and host name, one of them empty."""
    bare = text.removeprefix("[").removesuffix("]") if text.startswith("[") else text
    host = text.lower().rstrip(".")
    if len(text) <= MAX_NAME and _HOST_NAME.fullmatch(text) and not host.rpartition(".")[2].isdigit():
        return "", host
    return read_address(bare, otherwise=" nor a host name"), ""


def _labels(written: _Entry) -> dict[str, str]:
    labels = read_labels(written.labels)
    if written.role is None:
        return labels
    if written.role not in ROLES:
        hint = did_you_mean(written.role, ROLES) or f"; use one of {', '.join(ROLES)}"
        raise ConfigError(f"{shown(written.role)} is not a role{hint}", path="role")
    if labels.get(ROLE_LABEL, written.role) != written.role:
        raise ConfigError(f"contradicts the label {ROLE_LABEL}; give one of them", path="role")
    return labels | {ROLE_LABEL: written.role}


def _models(models: Sequence[str]) -> tuple[str, ...]:
    if len(models) > MAX_MODELS:
        raise ConfigError(f"has {len(models)} entries, the most is {MAX_MODELS}", path="models")
    for index, model in enumerate(models):
        if not 0 < len(model) <= MAX_NAME or not model.isprintable():
            raise ConfigError(
                f"{shown(model)} must be 1 to {MAX_NAME} printable characters", path=f"models[{index}]"
            )
    return tuple(models)


def _metrics_port(written: _Entry) -> int:
    """Metrics port of the first rank; 0 when it is not said."""
    if written.metrics.port is None:
        return 0
    port = read_port(written.metrics.port, "metrics.port")
    ranks = len(written.ports or ()) or written.ranks or 1
    if port + ranks - 1 > 65535:
        raise ConfigError(
            f"the metrics ports of {ranks} ranks from {port} on go beyond port 65535", path="metrics.port"
        )
    return port


def _ranks(written: _Entry, port: int, annotations: Mapping[str, str]) -> tuple[tuple[int, int], ...] | None:
    """(rank, port) of the ranks in use; None for a server without ranks whose port is in use."""
    if written.ports is not None and written.ranks is not None:
        raise ConfigError("excludes ranks; give the number of ranks or the port of each", path="ports")
    if written.ports is not None:
        if not 0 < len(written.ports) <= MAX_RANKS:
            raise ConfigError(f"must list 1 to {MAX_RANKS} ports", path="ports")
        ports = [read_port(each, f"ports[{index}]") for index, each in enumerate(written.ports)]
        if len(set(ports)) < len(ports):
            raise ConfigError("names a port twice; each rank has its own", path="ports")
    else:
        ports = [port + rank for rank in range(written.ranks or 1)]
        if ports[-1] > 65535:
            raise ConfigError(f"{written.ranks} ranks from port {port} on go beyond port 65535", path="ranks")
    active = next((annotations[key] for key in ACTIVE_PORTS if key in annotations), None)
    named = None if active is None else {part.strip() for part in active.split(",")}
    in_use = tuple((rank, each) for rank, each in enumerate(ports) if named is None or str(each) in named)
    return None if in_use and written.ports is None and written.ranks is None else in_use
