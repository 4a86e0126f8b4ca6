"""Endpoints from a YAML or JSON file, watched if asked for.

    endpoints:
      - {name: a, address: 10.0.0.1, port: "8000", namespace: default, labels: {llm-d.ai/engine-type: vllm}}

A bad entry is left out and named with its place; the rest applies, at the start as on a reload. Nothing
usable at the start is a ``ConfigError``. A changed file that cannot be read, or that has entries of which
none is usable, keeps the set there is; a file that says ``endpoints: []`` empties it.

Changes are seen by looking at the file (time, size, inode, resolved path), so a file replaced by a rename
and a Kubernetes ConfigMap volume, which swaps a symbolic link, are seen as well. It is read once it has
looked the same twice, so that a writer gets the time to finish. ``load`` and ``poll`` block on the file
system and on parsing; the runtime calls ``poll`` off the event loop. They are not called at the same time.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec
import yaml

from dataplane.errors import ConfigError, did_you_mean
from dataplane.files import FileSignature, read_regular_file
from dataplane.plugin.base import PluginInfo, PluginParams, Stability, TypedName
from epp.interfaces.data_layer import DiscoveredSet
from epp.interfaces.endpoint import MAX_ENDPOINTS, EndpointSpec
from epp.interfaces.handle import Handle
from epp.interfaces.state import listing

MAX_FILE_BYTES: Final = 1 << 20
MAX_NAME: Final = 253
"""Characters of a name, namespace, label key or label value."""
MAX_LABELS: Final = 64
"""Endpoints in a dump of the plugin's state."""

FIELDS: Final = ("name", "namespace", "address", "port", "labels")


class FileDiscoveryParams(PluginParams, frozen=True):
    """Parameters of ``file-discovery``."""

    path: str
    """The file."""
    watch_file: bool = False
    """Whether to apply later changes of the file."""


class FileDiscovery:
    """Reads the file at the start, and again when it has changed."""

    info: ClassVar[PluginInfo] = PluginInfo("file-discovery", FileDiscoveryParams, Stability.BETA)

    def __init__(self, name: TypedName, params: FileDiscoveryParams, handle: Handle) -> None:
        if not params.path:
            raise ConfigError("is empty; name the file that lists the endpoints", path="path")
        self.name = name
        self._path = params.path
        self._watch = params.watch_file
        self._applied = FileSignature()
        self._seen = FileSignature()
        self._endpoints: list[EndpointSpec] = []

    def load(self) -> DiscoveredSet:
        """The set in the file. ``ConfigError`` when there is nothing usable in it."""
        self._applied = self._seen = FileSignature.of(self._path)
        found = read_endpoints(self._path)
        if not found.endpoints:
            listed = found.problems or ["endpoints: the list is empty"]
            raise ConfigError(f"no usable endpoint: {'; '.join(listed[:5])}", path=self._path)
        self._endpoints = found.endpoints
        return found

    def poll(self) -> DiscoveredSet | None:
        """A new set if the file has changed and settled, else None."""
        if not self._watch:
            return None
        before, self._seen = self._seen, FileSignature.of(self._path)
        if self._seen == self._applied or self._seen != before:
            return None
        try:
            found = read_endpoints(self._path)
        except ConfigError as error:
            self._applied = self._seen
            return self._keep([str(error)])
        if FileSignature.of(self._path) != self._seen:
            return None  # written while it was read
        self._applied = self._seen
        if not found.endpoints and found.problems:
            return self._keep(found.problems)
        self._endpoints = found.endpoints
        return found

    def dump_state(self) -> dict[str, Any]:
        """The file and the endpoints it gave."""
        return {
            "path": self._path,
            "watchFile": self._watch,
            **listing(
                "endpoints",
                ({"id": spec.id, "address": spec.key} for spec in self._endpoints),
                len(self._endpoints),
            ),
        }

    def _keep(self, problems: list[str]) -> DiscoveredSet:
        kept = f"{self._path}: nothing of it is applied, the {len(self._endpoints)} endpoints there are stay"
        return DiscoveredSet(self._endpoints, [*problems, kept])


def read_endpoints(path: str) -> DiscoveredSet:
    """The endpoints in the file. ``ConfigError`` when the document as a whole cannot be used."""
    document = _parse(path, _read(path))
    if not isinstance(document, dict):
        raise ConfigError("must be a mapping with the list `endpoints`", path=path)
    entries = document.get("endpoints")
    if not isinstance(entries, list):
        what = "must be a list" if "endpoints" in document else "is missing"
        raise ConfigError(f"endpoints {what}; write `endpoints:` and one entry per model server", path=path)
    chosen = _Chosen(path)
    chosen.unknown_fields("", document, ("endpoints",))
    for index, entry in enumerate(entries[:MAX_ENDPOINTS]):
        place = f"endpoints[{index}]"
        try:
            spec = _endpoint(entry)
        except ConfigError as error:
            chosen.problems.append(f"{path}: {error.within(place)}")
            continue
        chosen.unknown_fields(f"{place}: ", entry, FIELDS)
        chosen.add(index, spec)
    if len(entries) > MAX_ENDPOINTS:
        chosen.problems.append(f"{path}: only the first {MAX_ENDPOINTS} of {len(entries)} endpoints are used")
    return DiscoveredSet(list(chosen.specs.values()), chosen.problems)


class _Chosen:
    """The entries so far that count; a later one takes the place of an earlier one of its name or address."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.problems: list[str] = []
        self.specs: dict[int, EndpointSpec] = {}
        self._owner: dict[str, int] = {}
        """Id or address -> index of the entry that has it."""

    def add(self, index: int, spec: EndpointSpec) -> None:
        for word, what in ((spec.id, "endpoint"), (spec.key, "address")):
            earlier = self._owner.get(word)
            if earlier is not None:
                replaced = self.specs.pop(earlier)
                del self._owner[replaced.id], self._owner[replaced.key]
                place = f"{self.path}: endpoints[{earlier}]"
                self.problems.append(f"{place}: left out, endpoints[{index}] has the same {what} {word}")
        self.specs[index] = spec
        self._owner[spec.id] = self._owner[spec.key] = index

    def unknown_fields(self, place: str, mapping: Mapping[object, object], known: Sequence[str]) -> None:
        for key in mapping:
            if key not in known:
                hint = did_you_mean(key, known) if isinstance(key, str) else ""
                self.problems.append(f"{self.path}: {place}unknown field {_shown(key)}{hint} is ignored")


def _read(path: str) -> str:
    data = read_regular_file(path, MAX_FILE_BYTES, path=path)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"is not UTF-8 text (byte {error.start})", path=path) from error


def _parse(path: str, text: str) -> Any:
    if text.lstrip().startswith("{"):
        try:
            return msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            pass  # YAML's flow style begins like JSON; if it is neither, YAML's message has line and column
    try:
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506  # both are safe
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigError(f"is neither YAML nor JSON: {' '.join(str(error).split())}", path=path) from error


def _endpoint(entry: object) -> EndpointSpec:
    """``ConfigError`` with the field as its path when the entry cannot be used."""
    if not isinstance(entry, dict):
        raise ConfigError(f"{_shown(entry)} is not a mapping with name, address and port")
    return EndpointSpec(
        name=_name(entry, "name", None),
        namespace=_name(entry, "namespace", "default"),
        address=_address(entry.get("address")),
        port=_port(entry.get("port", "8000")),
        labels=_labels(entry.get("labels")),
    )


def _name(entry: Mapping[str, object], field: str, default: str | None) -> str:
    value = entry.get(field, default)
    if value is None:
        raise ConfigError("is missing", path=field)
    if not isinstance(value, str):
        raise ConfigError(f"{_shown(value)} is not text; put it in quotes", path=field)
    if not 0 < len(value) <= MAX_NAME or not value.isprintable() or "/" in value:
        raise ConfigError(
            f"{_shown(value)} must be 1 to {MAX_NAME} printable characters without a slash", path=field
        )
    return value


def _address(value: object) -> str:
    if value is None:
        raise ConfigError("is missing; give the IP address of the model server", path="address")
    try:
        address = ipaddress.ip_address(value) if isinstance(value, str) and "%" not in value else None
    except ValueError:
        address = None
    if address is None:
        raise ConfigError(
            f"{_shown(value)} is not an IPv4 or IPv6 address; names are not resolved", path="address"
        )
    if address.is_unspecified or address.is_multicast:
        raise ConfigError(f"{_shown(value)} is not the address of one server", path="address")
    return str(address)


def _port(value: object) -> int:
    port = 0
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 5:
        port = int(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        port = value
    if not 0 < port <= 65535:
        raise ConfigError(f"{_shown(value)} is not a port; use 1 to 65535", path="port")
    return port


def _labels(value: object) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigError(f"{_shown(value)} is not a mapping of text to text", path="labels")
    if len(value) > MAX_LABELS:
        raise ConfigError(f"has {len(value)} entries, the most is {MAX_LABELS}", path="labels")
    for key, text in value.items():
        if not isinstance(key, str) or not isinstance(text, str):
            wrong = text if isinstance(key, str) else key
            raise ConfigError(f"{_shown(wrong)} is not text; put it in quotes", path=f"labels.{_key(key)}")
        if len(key) > MAX_NAME or len(text) > MAX_NAME:
            raise ConfigError(f"is longer than {MAX_NAME} characters", path=f"labels.{_key(key)}")
    return dict(value)


def _key(key: object) -> str:
    """A label key as it may stand in a path."""
    return key if isinstance(key, str) and key.isprintable() and len(key) <= 60 else _shown(key)


def _shown(value: object) -> str:
    """A value as it may stand in a message: text cut short, everything that can be large by its kind only."""
    if isinstance(value, str):
        return repr(value if len(value) <= 60 else f"{value[:60]}...")
    if isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < 1 << 64):
        return str(value).lower() if isinstance(value, bool) else str(value)
    kinds = {dict: "a mapping", list: "a list", int: "a huge number", type(None): "an empty value"}
    return kinds.get(type(value), f"a {type(value).__name__}")
