"""Endpoints from a YAML or JSON file, watched if asked for, with the host names in it followed.

The file's two forms are read by ``epp.plugins.endpoint_file``. A file with entries of which none is usable is
a ``ConfigError`` at the start; later such a file, or one that cannot be read, keeps the set there is. A
watched file that says ``endpoints: []`` is an empty pool, at the start (a fleet scaled to zero) as later.

Changes are seen by looking at the file (time, size, inode, resolved path), so a file replaced by a rename
and a Kubernetes ConfigMap volume, which swaps a symbolic link, are seen as well. It is read once it has
looked the same twice, so that a writer gets the time to finish, and applied once each of its host names has
been tried, so that a change from one name to another does not empty the pool for the time of a lookup.

``load`` and ``poll`` block on the file system; ``load`` waits for the host names too, for their timeout at
most. The runtime calls both beside the event loop, and not at the same time.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from dataplane.errors import ConfigError
from dataplane.files import FileSignature
from dataplane.plugin.base import PluginParams, TypedName
from dataplane.plugin.state import listing
from dataplane.resolver import Resolver
from epp.interfaces.data_layer import DiscoveredSet
from epp.interfaces.handle import Handle
from epp.plugins.endpoint_file import EndpointFile, read_endpoint_file

_FOREVER_EMPTY: Final = (
    "endpoints: the list is empty, and the file is not watched; list an endpoint, or set watchFile: true for "
    "a pool that fills later"
)


class EndpointsInFileParams(PluginParams, frozen=True):
    """Parameters of the discoveries."""

    path: str
    """The file."""
    watch_file: bool = False
    """Whether to apply later changes of the file."""


class EndpointsInFile:
    """Reads the file at the start, and again when it has changed. Base of discoveries."""

    takes_host_names: ClassVar[bool] = False
    """Whether the plain form may have host names for addresses; an ``EndpointList`` always may."""

    def __init__(self, name: TypedName, params: EndpointsInFileParams, handle: Handle) -> None:
        if not params.path:
            raise ConfigError("is empty; name the file that lists the endpoints", path="path")
        self.name = name
        self._path = params.path
        self._watch = params.watch_file
        self._applied = FileSignature()
        self._seen = FileSignature()
        self._file = EndpointFile(params.path, [], [])
        self._waiting: EndpointFile | None = None
        """A file that has been read and whose host names are being tried."""
        self._complaints: list[str] = []
        """What is wrong with the file that is there now, if it is not the one in use."""
        self._reported = DiscoveredSet([], [])
        self._resolver = Resolver(clock=handle.clock)

    def load(self) -> DiscoveredSet:
        """The set in the file. ``ConfigError`` when there is nothing usable in it or to wait for."""
        self._applied = self._seen = FileSignature.of(self._path)
        file = read_endpoint_file(self._path, with_host_names=self.takes_host_names)
        if not file.servers and not (self._watch and not file.problems):
            listed = file.problems or [_FOREVER_EMPTY]
            raise ConfigError(f"no usable endpoint: {'; '.join(listed[:5])}", path=self._path)
        self._file = file
        self._resolver.follow(file.host_names(), file.resolve)
        self._resolver.settle(file.resolve.timeout_s)
        self._reported = self._current()
        return self._reported

    def poll(self) -> DiscoveredSet | None:
        """A new set if the file has changed and settled, or a name has new addresses, else None."""
        changed = self._resolver.turn()
        changed |= self._watch and self._look_again()
        waiting = self._waiting
        if waiting is not None and self._resolver.settled:
            self._file, self._waiting, changed = waiting, None, True
            self._resolver.follow(waiting.host_names(), waiting.resolve)
        if not changed:
            return None
        current = self._current()
        if current == self._reported:
            return None
        self._reported = current
        return current

    def dump_state(self) -> dict[str, Any]:
        """The file and the endpoints it gave."""
        endpoints = self._reported.endpoints
        return {
            "path": self._path,
            "watchFile": self._watch,
            **listing(
                "endpoints", ({"id": spec.id, "address": spec.key} for spec in endpoints), len(endpoints)
            ),
        }

    def _look_again(self) -> bool:
        """Read the file if it has changed and settled; whether that is news."""
        before, self._seen = self._seen, FileSignature.of(self._path)
        if self._seen == self._applied or self._seen != before:
            return False
        try:
            file = read_endpoint_file(self._path, with_host_names=self.takes_host_names)
        except ConfigError as error:
            self._applied = self._seen
            return self._refuse([str(error)])
        if FileSignature.of(self._path) != self._seen:
            return False  # written while it was read
        self._applied = self._seen
        if not file.servers and file.problems:
            return self._refuse(file.problems)
        self._complaints = []
        self._waiting = file
        self._resolver.follow(self._file.host_names() | file.host_names(), file.resolve)
        self._resolver.turn()
        return True

    def _refuse(self, problems: list[str]) -> bool:
        self._waiting = None
        self._complaints = problems
        self._resolver.follow(self._file.host_names(), self._file.resolve)
        return True

    def _current(self) -> DiscoveredSet:
        found = self._file.endpoints(self._resolver.addresses)
        if self._complaints:
            kept = (
                f"{self._path}: nothing of it is applied, the {len(found.endpoints)} endpoints there are stay"
            )
            found.problems = [*self._complaints, kept]
        found.problems += [f"{self._path}: {problem}" for problem in self._resolver.problems()]
        return found
