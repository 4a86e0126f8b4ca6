"""One pool's processes: brought to what is wanted, again and again, by one task that owns them.

A picker or simulator that dies is started again by its ``Child``; one whose command line is to differ is
stopped and started; files change under running processes. What cannot be done now (a port that is taken, a
folder that cannot be written) is told as a problem and tried again.
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

from controlplane.fleet.local import commands
from controlplane.fleet.local.commands import PickerPorts
from controlplane.fleet.local.configuration import DEFAULT, ConfigFile
from controlplane.fleet.local.counts import Counts, Since
from controlplane.fleet.local.delivery import Delivery
from controlplane.fleet.local.leftovers import journal_of
from controlplane.fleet.local.probe import MAX_PROBLEMS, Probe
from controlplane.fleet.local.usage import usage_of
from controlplane.fleet.local.wanted import WantedConfig, WantedPool
from dataplane.errors import ConfigError
from dataplane.files import FileSignature
from dataplane.processes.child import Child, Say, StartError
from dataplane.processes.folder import write_atomically
from dataplane.processes.ports import LOOPBACK, Ports, is_free
from epp.plugins.endpoint_file import MAX_FILE_BYTES, parse_document

log = logging.getLogger(__name__)

LOOK_S: Final = 0.25
"""How often the simulator's file is looked at, and what failed is tried again."""
PORTS_FILE: Final = "ports.json"
SIMULATED: Final = "simulated.yaml"
PICKER: Final = "epp"
SIMULATOR: Final = "sim"
MAX_TEXT: Final = 500
"""Characters of a reported line."""


class LocalPool:
    """The processes of one pool, from the first to the last; ``run`` is the task."""

    def __init__(self, wanted: WantedPool, folder: Path, delivery: Delivery, choose: Ports, say: Say) -> None:
        self.name = wanted.name
        self._wanted: WantedPool | None = wanted
        self._folder = folder
        self._delivery = delivery
        self._choose = choose
        self._say: Say = lambda text: say(f"{self.name}: {text}")
        self._children: dict[str, Child] = {}
        self._ports: PickerPorts | None = None
        self._asked: tuple[int, int, int] = (0, 0, 0)
        """The configured ports that ``_ports`` were chosen for."""
        self._simulated: Sequence[Any] = ()
        self._seen = FileSignature()
        self._delivered: tuple[WantedPool, Sequence[Any]] | None = None
        self._config = ConfigFile(folder)
        self._ready = 0
        """The picker that was ready when it was last looked at."""
        self._told: WantedConfig | None = None
        """The configuration whose fate the control plane knows."""
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
    def is_config_open(self) -> bool:
        """Whether the picker has to be asked about its configuration."""
        return self._config.is_trying

    def seen(self, found: Probe) -> None:
        """Take over what a look at the picker has shown."""
        self._ready = (self._pid(PICKER) or 0) if found.is_ready else 0
        try:
            self._config.judge(found.running, found.refused, found.refusal)
        except OSError as error:
            self._note(f"{error.filename}: {error.strerror}")

    def verdict(self) -> tuple[WantedConfig, list[str]] | None:
        """What became of the wanted configuration, and why it is refused; None when there is no news."""
        config = None if self._wanted is None else self._wanted.config
        if config is None or config == self._told or not self._ready:
            return None
        problems = self._config.verdict(config.content)
        return None if problems is None else (config, problems)

    @property
    def is_guarded(self) -> bool:
        """Whether the picker's requests and errors are wanted: a guarded configuration runs."""
        config = None if self._wanted is None else self._wanted.config
        return config is not None and config.is_guarded and config == self._told

    def observation(self, found: Probe) -> tuple[WantedConfig, Counts] | None:
        """What the picker has counted since it runs the wanted configuration, if that is wanted and known."""
        config = None if self._wanted is None else self._wanted.config
        pid = self._pid(PICKER)
        if config is None or pid is None or found.counts is None or not self.is_guarded:
            return None
        if self._config.verdict(config.content) != []:
            return None
        what = (config.document, config.revision, config.rollout)
        return config, self._since.count(what, pid, found.counts)

    def told(self, config: WantedConfig) -> None:
        """The control plane knows."""
        self._told = config

    def _pid(self, name: str) -> int | None:
        child = self._children.get(name)
        return None if child is None else child.pid

    def want(self, wanted: WantedPool | None) -> None:
        """What should run from now on; None = nothing, and ``run`` ends."""
        if wanted != self._wanted:
            self._wanted = wanted
            self._wake.set()

    async def run(self) -> None:
        """Until nothing is wanted. Cancelled, it stops the processes and keeps the files."""
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
        self._deliver(wanted)
        asked = wanted.driver.ports
        if self._ports is None or self._asked != (asked.grpc, asked.health, asked.metrics):
            await self._stop(PICKER)
            self._release()
            self._ports = self._choose_ports((asked.grpc, asked.health, asked.metrics))
        running = self._pid(PICKER)
        self._config.prepare(running)
        if running is not None and running == self._ready:
            self._config.offer(_text(wanted.config), running)
        flags = ["--config-file", str(self._config.path), *self._delivery.flags()]
        flags += commands.usage_flags(journal_of(self._folder))
        experimental = wanted.driver.allow_experimental_plugins
        await self._ensure(PICKER, commands.picker(self.name, self._ports, flags, experimental=experimental))

    def _deliver(self, wanted: WantedPool) -> None:
        """Bring the picker's files up to date if there is anything new."""
        last = self._delivered
        if last is None or last[0] is not wanted or last[1] is not self._simulated:
            self._delivery.deliver(wanted, self._simulated)
            self._delivered = (wanted, self._simulated)

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
                again = last if not configured and last and is_free(LOOPBACK, last) else configured
                chosen.append(self._choose(again, f"driver.ports.{name}"))
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
            "config": self._shown_config(),
            "picker": _process(picker),
            "simulator": _process(self._children.get(SIMULATOR)),
            "endpoints": found.endpoints,
            "problems": [text[:MAX_TEXT] for text in (*problems, *found.problems)][:MAX_PROBLEMS],
        }

    def _shown_config(self) -> dict[str, Any] | None:
        """The wanted revision, and why it does not run if it does not."""
        config = None if self._wanted is None else self._wanted.config
        if config is None:
            return None
        problems = self._config.verdict(config.content)
        state = "pending" if problems is None else "refused" if problems else "running"
        return {
            "document": config.document,
            "revision": config.revision,
            "state": state,
            "problems": [text[:MAX_TEXT] for text in (problems or ())[:MAX_PROBLEMS]],
        }


def _text(config: WantedConfig | None) -> str:
    return DEFAULT if config is None else config.content


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
