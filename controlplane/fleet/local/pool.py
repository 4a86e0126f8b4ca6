"""One pool's processes: brought to what is wanted, again and again, by one task that owns them.

A picker or simulator that dies is started again by its ``Child``; one whose command line is to differ is
stopped and started. The control plane sends the picker what it is to do; only its endpoints come from here,
as a file that changes under it. What cannot be done now (a port that is taken, a folder that cannot be
written) is told as a problem and tried again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from controlplane.configs.guarding import Guarded
from controlplane.fleet.local import commands
from controlplane.fleet.local.access import PoolAccess
from controlplane.fleet.local.commands import PickerPorts
from controlplane.fleet.local.counts import Counts, Since
from controlplane.fleet.local.leftovers import journal_of
from controlplane.fleet.local.probe import MAX_PROBLEMS, Probe
from controlplane.fleet.local.usage import usage_of
from controlplane.fleet.local.wanted import WantedPool
from controlplane.fleet.services import file_document
from dataplane.errors import ConfigError
from dataplane.files import FileSignature
from dataplane.processes.child import Child, Say, StartError
from dataplane.processes.folder import write_atomically
from dataplane.processes.ports import Ports
from epp.plugins.endpoint_file import MAX_FILE_BYTES, parse_document

log = logging.getLogger(__name__)

LOOK_S: Final = 0.25
"""How often the simulator's file is looked at, and what failed is tried again."""
PORTS_FILE: Final = "ports.json"
SIMULATED: Final = "simulated.yaml"
ENDPOINTS: Final = "endpoints.yaml"
OUTDATED: Final = ("picker.yaml", "picker.good.yaml", "objects.yaml")
"""What earlier versions have told pickers by; nobody reads it any more."""
PICKER: Final = "epp"
SIMULATOR: Final = "sim"
MAX_TEXT: Final = 500
"""Characters of a reported line."""


class LocalPool:
    """The processes of one pool, from the first to the last; ``run`` is the task."""

    def __init__(self, wanted: WantedPool, folder: Path, access: PoolAccess, choose: Ports, say: Say) -> None:
        self.name = wanted.name
        self._wanted: WantedPool | None = wanted
        self._folder = folder
        self._access = access
        self._choose = choose
        self._say: Say = lambda text: say(f"{self.name}: {text}")
        self._children: dict[str, Child] = {}
        self._ports: PickerPorts | None = None
        self._asked: tuple[int, int, int] = (0, 0, 0)
        """The configured ports that ``_ports`` were chosen for."""
        self._simulated: Sequence[Any] = ()
        self._seen = FileSignature()
        self._listed: tuple[WantedPool, Sequence[Any]] | None = None
        """What the picker's endpoints file was last made of."""
        self._written: dict[str, Any] = {}
        """The document in it."""
        self._since = Since()
        self._trouble = ""
        self._wake = asyncio.Event()

    @property
    def logs(self) -> Path:
        """Folder of the processes' logs."""
        return self._folder / "logs"

    @property
    def metrics_port(self) -> int | None:
        """Where the picker tells how it fares, while it runs."""
        return self._ports.metrics if self._ports is not None and self._pid(PICKER) else None

    @property
    def wanted(self) -> WantedPool | None:
        """What should run."""
        return self._wanted

    @property
    def is_guarded(self) -> bool:
        """Whether the picker's requests and errors are wanted."""
        return self._wanted is not None and self._wanted.guarded is not None

    def observation(self, found: Probe) -> tuple[Guarded, Counts] | None:
        """What the picker has counted since it runs the guarded revision, if that is wanted and known."""
        guarded = None if self._wanted is None else self._wanted.guarded
        pid = self._pid(PICKER)
        if guarded is None or pid is None or found.counts is None or not guarded.is_running(found.running):
            return None
        return guarded, self._since.count(guarded, pid, found.counts)

    def _pid(self, name: str) -> int | None:
        child = self._children.get(name)
        return None if child is None else child.pid

    def want(self, wanted: WantedPool | None, token: str) -> None:
        """What should run from now on, with this token if there is a new one.

        None = nothing, and ``run`` ends.
        """
        if wanted != self._wanted:
            self._wanted = wanted
            self._wake.set()
        if token not in {"", self._access.token}:
            self._access.token = token
            self._wake.set()

    async def run(self) -> None:
        """Until nothing is wanted. Cancelled, it stops the processes and keeps the files."""
        for name in OUTDATED:
            with contextlib.suppress(OSError):
                (self._folder / name).unlink(missing_ok=True)
        try:
            while True:
                self._wake.clear()
                wanted = self._wanted
                if wanted is None:
                    break
                self._note(await self._attempt(wanted))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await self._wake.wait()
        finally:
            await asyncio.gather(*(self._stop(name) for name in list(self._children)))
            self._release()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _attempt(self, wanted: WantedPool) -> str:
        """Bring everything to what is wanted; what stands in the way, or nothing."""
        try:
            await self._settle(wanted)
        except (ConfigError, StartError) as error:
            return str(error)
        except OSError as error:
            return f"{error.filename}: {error.strerror}"
        except Exception as error:  # a defect in the upkeep must not end processes that serve
            log.exception("the upkeep of pool %s failed", self.name)
            return repr(error)
        return ""

    async def _settle(self, wanted: WantedPool) -> None:
        self.logs.mkdir(parents=True, exist_ok=True)
        simulated = wanted.driver.simulated
        listed = self._folder / SIMULATED
        if simulated is None:
            await self._stop(SIMULATOR)
            self._simulated, self._seen = (), FileSignature()
            listed.unlink(missing_ok=True)
        else:
            last = FileSignature.of(str(listed))
            if await self._ensure(SIMULATOR, commands.simulator(self.name, simulated, listed)):
                # What an earlier simulator has listed is not there any more.
                self._simulated, self._seen = (), last
            self._look(listed)
        self._list_endpoints(wanted)
        self._access.prepare()
        asked = wanted.driver.ports
        if self._ports is None or self._asked != (asked.grpc, asked.health, asked.metrics):
            await self._stop(PICKER)
            self._release()
            self._ports = self._choose_ports((asked.grpc, asked.health, asked.metrics))
        flags = ["--endpoints-file", str(self._folder / ENDPOINTS), *self._access.flags()]
        flags += commands.usage_flags(journal_of(self._folder))
        experimental = wanted.driver.allow_experimental_plugins
        await self._ensure(PICKER, commands.picker(self.name, self._ports, flags, experimental=experimental))

    def _list_endpoints(self, wanted: WantedPool) -> None:
        """Write the picker's endpoints file if it is to say something new."""
        if self._listed is not None and self._listed[0] is wanted and self._listed[1] is self._simulated:
            return
        document = file_document(wanted.resolve, [*self._simulated, *wanted.endpoints])
        if document != self._written:
            # JSON is YAML as well, and much faster to write.
            write_atomically(self._folder / ENDPOINTS, json.dumps(document))
            self._written = document
        self._listed = (wanted, self._simulated)

    async def _ensure(self, name: str, words: Sequence[str]) -> bool:
        """Have a process with this command line; whether it had to be started."""
        child = self._children.get(name)
        if child is not None and child.command == words:
            return False
        await self._stop(name)
        child = Child(name, words, self.logs, self._say, commands.child_environment())
        child.is_ready = True  # whenever it dies, it is started again
        self._children[name] = child
        try:
            await child.start()
        except StartError:
            del self._children[name]
            raise
        return True

    async def _stop(self, name: str) -> None:
        if name in self._children:
            await self._children[name].stop()
            del self._children[name]

    def _look(self, listed: Path) -> None:
        """Take over what the simulator has listed; while there is no good file, what it listed before."""
        seen = FileSignature.of(str(listed))
        if seen in {self._seen, FileSignature()} or seen.size > MAX_FILE_BYTES:
            return
        self._seen = seen
        document = parse_document(str(listed), listed.read_text())
        entries = document.get("endpoints") if isinstance(document, dict) else None
        if isinstance(entries, list):
            self._simulated = entries

    def _choose_ports(self, asked: tuple[int, int, int]) -> PickerPorts:
        """Configured ones, else those of the last time, else free ones. ``ConfigError`` when one is taken."""
        kept = self._kept_ports()
        chosen: list[int] = []
        try:
            for name, configured, last in zip(PickerPorts._fields, asked, kept, strict=True):
                path = f"driver.ports.{name}"
                chosen.append(
                    self._choose(configured, path) if configured else self._choose.again(last, path)
                )
        except ConfigError:
            self._choose.release(*chosen)
            raise
        self._asked = asked
        ports = PickerPorts(*chosen)
        write_atomically(self._folder / PORTS_FILE, json.dumps(ports._asdict()))
        return ports

    def _kept_ports(self) -> tuple[int, ...]:
        try:
            kept = json.loads((self._folder / PORTS_FILE).read_text())
            return tuple(int(kept[name]) for name in PickerPorts._fields)
        except (OSError, ValueError, KeyError, TypeError):
            return (0, 0, 0)

    def _release(self) -> None:
        if self._ports is not None:
            self._choose.release(*self._ports)
            self._ports = None

    def _note(self, trouble: str) -> None:
        """Say a problem once."""
        if trouble and trouble != self._trouble:
            self._say(trouble)
        self._trouble = trouble

    def report(self, found: Probe) -> dict[str, Any]:
        """JSON-able, of bounded size: what runs and how it fares."""
        picker = self._children.get(PICKER)
        problems = [text for text in (self._trouble, *map(_ending, self._children.values())) if text]
        if picker is None:
            state = "failed" if self._trouble else "starting"
        elif picker.pid is None:
            state = "down"
        else:
            state = "ready" if found.is_ready else "starting"
        return {
            "state": state,
            "ports": None if self._ports is None else self._ports._asdict(),
            "picker": _process(picker),
            "simulator": _process(self._children.get(SIMULATOR)),
            "endpoints": found.endpoints,
            "problems": [text[:MAX_TEXT] for text in (*problems, *found.problems)][:MAX_PROBLEMS],
        }


def _process(child: Child | None) -> dict[str, Any] | None:
    if child is None:
        return None
    usage = None if child.pid is None else usage_of(child.pid)
    return {
        "pid": child.pid,
        "restarts": child.restarts,
        "cpuSeconds": None if usage is None else usage.cpu_s,
        "memoryBytes": None if usage is None else usage.memory_bytes,
        "log": str(child.log),
    }


def _ending(child: Child) -> str:
    """The last words of a process that is not there."""
    if child.pid is not None:
        return ""
    last = child.tail().rpartition("\n")[2]
    return f"{child.name} is not running and will be started again; its last words: {last}"
