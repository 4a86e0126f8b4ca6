"""What an endpoints file lists, in either of its two forms, and the endpoints that come of it.

Without ``apiVersion`` the file has llm-d's plain form, one entry an endpoint. With ``apiVersion:
pointsman.dev/v1`` it is an ``EndpointList`` (``epp.plugins.endpoint_list``), in which an entry may be a name
with several addresses, or a server with several ranks.

A bad entry is left out and named with its place; the rest counts. Of endpoints with one name, or with one
address and port, the first counts. ``read_endpoint_file`` blocks on the file system.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from dataplane.config.document import read_document
from dataplane.errors import ConfigError, did_you_mean
from dataplane.files import read_regular_file
from dataplane.resolver import ResolveSettings
from epp.interfaces.data_layer import DiscoveredSet
from epp.interfaces.endpoint import MAX_ENDPOINTS, EndpointSpec
from epp.plugins.endpoint_fields import read_address, read_labels, read_name, read_port, shown
from epp.plugins.endpoint_list import ListedServer, is_endpoint_list, read_address_or_host, read_list

MAX_FILE_BYTES: Final = 1 << 20
MAX_VALUES: Final = 1_000_000
"""Values of one file, with what aliases and merges repeat."""
MAX_MISTAKES: Final = 5
"""Mistakes of the file's text that one message tells."""
FIELDS: Final = ("name", "namespace", "address", "port", "labels")


class EndpointFile(msgspec.Struct):
    """One reading of the file."""

    path: str
    servers: list[ListedServer]
    problems: list[str]
    resolve: ResolveSettings = ResolveSettings()

    def host_names(self) -> set[str]:
        """Host names to resolve."""
        return {server.host for server in self.servers if server.host}

    def endpoints(self, addresses: Callable[[str], Sequence[str]]) -> DiscoveredSet:
        """The endpoints, with the host names at these addresses."""
        chosen = _Chosen(self.path, list(self.problems))
        for server in self.servers:
            for spec in server.specs(addresses(server.host) if server.host else ()):
                chosen.add(server.place, spec)
        return chosen.result()


def read_endpoint_file(path: str, *, with_host_names: bool = False) -> EndpointFile:
    """What the file lists. ``ConfigError`` when the document as a whole cannot be used.

    ``with_host_names``: addresses of the plain form may be host names as well.
    """
    document = parse_document(path, _read(path))
    if not isinstance(document, dict):
        raise ConfigError("must be a mapping with the list `endpoints`", path=path)
    if is_endpoint_list(document):
        listed = read_list(path, document)
        return EndpointFile(path, listed.servers, listed.problems, listed.resolve)
    entries = document.get("endpoints")
    if not isinstance(entries, list):
        what = "must be a list" if "endpoints" in document else "is missing"
        raise ConfigError(f"endpoints {what}; write `endpoints:` and one entry per model server", path=path)
    servers: list[ListedServer] = []
    problems = _unknown(f"{path}: ", document, ("endpoints",))
    for index, entry in enumerate(entries):
        place = f"endpoints[{index}]"
        try:
            servers.append(_server(place, entry, with_host_names=with_host_names))
        except ConfigError as error:
            problems.append(f"{path}: {error.within(place)}")
            continue
        problems += _unknown(f"{path}: {place}: ", entry, FIELDS)
    return EndpointFile(path, servers, problems)


def clashes(servers: Sequence[ListedServer]) -> list[ConfigError]:
    """Entries that would be left out for what earlier ones have, as far as addresses are given."""
    chosen = _Chosen("", [])
    for server in servers:
        for spec in server.specs(()):
            chosen.add(server.place, spec)
    return chosen.clashes


class _Chosen:
    """The endpoints so far; none takes the place of an earlier one of its name or address."""

    def __init__(self, path: str, problems: list[str]) -> None:
        self._path = path
        self._problems = problems
        self._specs: list[EndpointSpec] = []
        self._owners: dict[str, str] = {}
        """Id or address -> place of the entry that has it."""
        self._beyond = 0
        self.clashes: list[ConfigError] = []

    def add(self, place: str, spec: EndpointSpec) -> None:
        for word, what in ((spec.id, "endpoint"), (spec.key, "address")):
            owner = self._owners.get(word)
            if owner is not None:
                message = f"left out, {owner} has the same {what} {word}"
                self.clashes.append(ConfigError(message, path=place))
                return
        if len(self._specs) >= MAX_ENDPOINTS:
            self._beyond += 1
            return
        self._specs.append(spec)
        self._owners[spec.id] = self._owners[spec.key] = place

    def result(self) -> DiscoveredSet:
        self._problems += [f"{self._path}: {clash}" for clash in self.clashes]
        if self._beyond:
            total = len(self._specs) + self._beyond
            self._problems.append(
                f"{self._path}: only the first {MAX_ENDPOINTS} of {total} endpoints are used"
            )
        return DiscoveredSet(self._specs, self._problems)


def _unknown(prefix: str, mapping: Mapping[object, object], known: Sequence[str]) -> list[str]:
    return [
        f"{prefix}unknown field {shown(key)}{did_you_mean(key, known) if isinstance(key, str) else ''} "
        "is ignored"
        for key in mapping
        if key not in known
    ]


def _read(path: str) -> str:
    data = read_regular_file(path, MAX_FILE_BYTES, path=path)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"is not UTF-8 text (byte {error.start})", path=path) from error


def parse_document(path: str, text: str) -> Any:
    """YAML or JSON as plain data. ``ConfigError`` with line and column when it is neither."""
    problems: list[ConfigError] = []
    document = read_document(text, problems, max_values=MAX_VALUES)
    if problems:
        raise ConfigError(f"cannot be read: {'; '.join(map(str, problems[:MAX_MISTAKES]))}", path=path)
    return document


def _server(place: str, entry: object, *, with_host_names: bool) -> ListedServer:
    """``ConfigError`` with the field as its path when the entry cannot be used."""
    if not isinstance(entry, dict):
        raise ConfigError(f"{shown(entry)} is not a mapping with name, address and port")
    address, host = entry.get("address"), ""
    if with_host_names and isinstance(address, str):
        address, host = read_address_or_host(address)
    else:
        hint = "; names are resolved in a pointsman.dev/v1 EndpointList"
        address = read_address(address, otherwise=hint)
    spec = EndpointSpec(
        name=read_name(entry.get("name"), "name"),
        namespace=read_name(entry.get("namespace", "default"), "namespace"),
        address=address,
        port=read_port(entry.get("port", "8000")),
        labels=read_labels(entry.get("labels")),
    )
    return ListedServer(place, spec, host)
