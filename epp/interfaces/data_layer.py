"""The data layer's extension points: where endpoints come from, and what is read from each of them."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

import msgspec

from dataplane.plugin.base import DataKey, TypedName
from epp.interfaces.endpoint import Endpoint, EndpointSpec


class DiscoveredSet(msgspec.Struct):
    """One complete reading of the endpoint set. ``problems`` names what was left out and why."""

    endpoints: list[EndpointSpec]
    problems: list[str]


@runtime_checkable
class EndpointDiscovery(Protocol):
    """Supplies the endpoints of the pool."""

    def load(self) -> DiscoveredSet:
        """The current set. ``ConfigError`` when there is nothing usable to start with."""
        ...

    def poll(self) -> DiscoveredSet | None:
        """A new complete set if it changed since the last call, else None. Never raises."""
        ...


class Measurements(msgspec.Struct):
    """What one scrape of a model server says; None = the series was not there."""

    waiting: float | None = None
    running: float | None = None
    kv_usage: float | None = None
    block_size: int | None = None
    num_blocks: int | None = None
    active_models: frozenset[str] | None = None
    waiting_models: frozenset[str] | None = None
    max_active_models: int | None = None
    missing: Mapping[str, str] | None = None
    """Measurements the server's engine should report but did not: field -> name of the absent series."""
    attributes: Mapping[DataKey[Any], Any] | None = None
    """Endpoint attributes the extractor declares as ``produces``; None as a value = not there any more."""


class UnreadablePageError(Exception):
    """A body is not what its extractor reads. The message says what is wrong with it, in a few words."""


@runtime_checkable
class Extractor(Protocol):
    """Reads measurements and attributes out of what a source fetched; compiled once per endpoint."""

    name: TypedName
    expects: ClassVar[str]
    """Payload kind this extractor accepts, as its source's ``payload``."""

    @property
    def produces(self) -> Sequence[DataKey[Any]]:
        """``ENGINE_METRICS`` if it measures load, and the endpoint attributes it leaves."""
        ...

    def reader(self, endpoint: Endpoint) -> Callable[[bytes], Measurements]:
        """A function from body bytes to measurements, for this endpoint's engine.

        It raises ``UnreadablePageError`` for a body that is not of the kind it reads.
        """
        ...


@runtime_checkable
class DataSource(Protocol):
    """Something polled per endpoint over HTTP."""

    name: TypedName
    payload: ClassVar[str]
    scheme: str
    path: str
    interval_s: float
    """0 = every base tick."""
    accept: str
    """Media type to ask for."""
    extractors: Sequence[Extractor]
    """As bound."""

    def authority(self, endpoint: Endpoint) -> str:
        """``host:port`` to poll for this endpoint; empty when that is not known, and it is not polled."""
        ...

    def tls(self, endpoint: Endpoint) -> ssl.SSLContext | None:
        """How to connect to this endpoint by https; None for http."""
        ...

    def bind(self, extractors: Sequence[Extractor]) -> None:
        """The extractors this source feeds."""
        ...


@runtime_checkable
class CertificateFollower(Protocol):
    """A data source whose certificates may be renewed while it is in use."""

    @property
    def certificate_files(self) -> Sequence[str]:
        """The files; without any nobody asks for a renewal."""
        ...

    def renew_certificates(self) -> bool:
        """Read changed files again; whether there were any. Blocks. ``ConfigError``: the old ones stay."""
        ...


@runtime_checkable
class EndpointExtractor(Protocol):
    """Derives endpoint attributes from what discovery says; asked when an endpoint comes or is relabelled."""

    name: TypedName

    @property
    def produces(self) -> Sequence[DataKey[Any]]:
        """The attributes it leaves."""
        ...

    def extract(self, spec: EndpointSpec) -> Mapping[DataKey[Any], Any]:
        """Values by key; None = absent. Must not block."""
        ...


@runtime_checkable
class NotificationSource(Protocol):
    """Names the events of discovery as a data source. Nothing is polled: those bound to it are told."""

    name: TypedName
    notifies_of: ClassVar[str]
    """Kind of the events."""
