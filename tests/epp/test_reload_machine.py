"""Any order of requests, configurations, mistakes and endpoints: each request sees one configuration.

The model knows of every configuration what it lets requests do (zones, sessions, known prompts) and of every
request which one it began with; the picker must agree after each step.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dataplane.config.reload import revision_of
from dataplane.errors import ServiceUnavailableError
from dataplane.extproc.exchange import Ending
from epp.app import Picker
from epp.handler import PickerExchange
from epp.interfaces.data_layer import DiscoveredSet
from epp.interfaces.endpoint import Endpoint, EndpointSpec
from epp.interfaces.scheduling import FiltersDrainedError
from epp.options import EppOptions
from tests.support.request_path import destination, http_request, response

PROMPTS = [f"{name} " * 300 for name in ("north", "south")]
SESSIONS = ["", "one", "one"]
NUMBERS = st.just(set[int]()) | st.sets(st.integers(0, 39), min_size=2, max_size=24)
"""More endpoints than the table has room for at first."""


class Wanted(msgspec.Struct, frozen=True):
    """A configuration in the few respects that matter here."""

    zone: str = ""
    """Filter by this label; empty = no such filter."""
    session: str = ""
    """Name of a session filter."""
    is_scorer: bool = False
    """Whether the plugin of that name is a scorer instead."""
    prefix: bool = False
    cold: bool = False
    load: str = ""
    """Name of the token ledger."""
    output: bool = False
    weight: float = 1.0
    place: str = "first"
    """Which endpoints file."""

    @property
    def matches_prefixes(self) -> bool:
        """Whether there is a prefix index: two of the scorers read it."""
        return self.prefix or self.cold

    def document(self, folder: Path) -> dict[str, Any]:
        """As an operator writes it."""
        plugins: list[dict[str, Any]] = [
            {"type": "file-discovery", "parameters": {"path": str(folder / self.place)}},
            {"type": "random-picker" if self.weight == 2.0 else "max-score-picker"},
        ]
        profile: list[dict[str, Any]] = []

        def use(name: str, plugin_type: str, parameters: dict[str, Any] | None = None) -> None:
            spec = {"name": name, "type": plugin_type}
            plugins.append(spec if parameters is None else spec | {"parameters": parameters})
            profile.append({"pluginRef": name})

        if self.zone:
            use("zone", "label-selector-filter", {"matchLabels": {"zone": self.zone}})
        if self.session:
            kind = "scorer" if self.is_scorer else "filter"
            use(self.session, f"session-affinity-{kind}", {"strategy": "session_id"})
        if self.prefix:
            use("prefix", "prefix-cache-scorer")
            profile[-1]["weight"] = self.weight
        if self.cold:
            use("cold", "no-hit-lru-scorer")
        if self.load:
            ledger = {"addEstimatedOutputTokens": self.output}
            plugins.append({"name": self.load, "type": "inflight-load-producer", "parameters": ledger})
            use("tokens", "token-load-scorer", {"inFlightLoadProducerName": self.load})
        return {
            "apiVersion": "llm-d.ai/v1alpha1",
            "kind": "EndpointPickerConfig",
            "plugins": plugins,
            "schedulingProfiles": [{"name": "default", "plugins": profile}],
            "dataLayer": {"injectDefaults": False, "discovery": {"pluginRef": "file-discovery"}},
        }


CONFIGS = st.builds(
    Wanted,
    zone=st.sampled_from(["", "", "a", "b"]),
    session=st.sampled_from(["", "s", "s", "t"]),
    is_scorer=st.booleans(),
    prefix=st.booleans(),
    cold=st.booleans(),
    load=st.sampled_from(["", "inflight-load-producer", "other"]),
    output=st.booleans(),
    weight=st.sampled_from([0.0, 1.0, 2.0]),
    place=st.sampled_from(["first", "first", "second"]),
)


class Running:
    """A configuration that runs, or ran, and what its plugins have learnt."""

    def __init__(self, wanted: Wanted, revision: str, before: Running | None) -> None:
        self.wanted = wanted
        self.revision = revision
        old = None if before is None else before.wanted
        same_map = old is not None and (old.session, old.is_scorer) == (wanted.session, wanted.is_scorer)
        self.pins: dict[str, str] = before.pins if before is not None and same_map else {}
        same_index = old is not None and old.matches_prefixes and wanted.matches_prefixes
        self.known: set[tuple[str, Endpoint]] = before.known if before is not None and same_index else set()


class Asked:
    """A request."""

    def __init__(self, exchange: PickerExchange, running: Running) -> None:
        self.exchange = exchange
        self.running = running
        self.prompt = ""
        self.endpoint: Endpoint | None = None
        self.computed = False


def spec(number: int, zone: str = "") -> EndpointSpec:
    """Endpoint of a number; odd ones are in zone b unless told otherwise."""
    labels = {"zone": zone or "ab"[number % 2]}
    return EndpointSpec(f"e{number}", "default", f"127.0.1.{number}", 8000, labels)


class ReloadMachine(RuleBasedStateMachine):
    """Drives a picker without listeners."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = Path(tempfile.mkdtemp(prefix="reload-"))
        self.requests: list[Asked] = []

    @initialize(wanted=CONFIGS, first=NUMBERS, second=NUMBERS)
    def begin(self, wanted: Wanted, first: set[int], second: set[int]) -> None:
        self.places = {"first": sorted(first | {0}), "second": sorted(second | {1})}
        for place, numbers in self.places.items():
            listed = [
                {"name": s.name, "address": s.address, "port": s.port, "labels": dict(s.labels)}
                for s in map(spec, numbers)
            ]
            (self.folder / place).write_text(json.dumps({"endpoints": listed}))
        text = self.write(wanted)
        self.picker = Picker(
            EppOptions(
                config_file=str(self.folder / "config"),
                watch_config=False,
                secure_serving=False,
                allow_experimental_plugins=True,
            )
        )
        self.run(self.picker.current.discovery.load())
        self.now = Running(wanted, revision_of(text), None)
        self.move_to(wanted.place)

    def teardown(self) -> None:
        if hasattr(self, "picker"):
            for asked in list(self.requests):
                self.end(asked, Ending.NATURAL)
            self.ledgers_agree()
            self.run(self.picker.stop())
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()
        shutil.rmtree(self.folder)

    def run(self, coroutine: Any) -> Any:
        return self.loop.run_until_complete(coroutine)

    def write(self, wanted: Wanted) -> bytes:
        text = yaml.safe_dump(wanted.document(self.folder)).encode()
        (self.folder / "config").write_bytes(text)
        return text

    def move_to(self, place: str) -> None:
        """The endpoints of a file are the pool's."""
        self.pool = {s.id: s for s in map(spec, self.places[place])}

    # configurations

    @rule(
        drawn=CONFIGS,
        fields=st.sets(st.sampled_from(Wanted.__struct_fields__), max_size=2),
        times=st.integers(1, 3),
    )
    def good_configuration(self, drawn: Wanted, fields: set[str], times: int) -> None:
        old = self.now
        wanted = msgspec.structs.replace(old.wanted, **{field: getattr(drawn, field) for field in fields})
        before, text = self.picker.current, self.write(wanted)

        async def reload() -> list[list[str]]:
            return await asyncio.gather(*(self.picker.reload() for _ in range(times)))

        assert self.run(reload()) == [[]] * times
        if revision_of(text) == old.revision:
            assert self.picker.current is before
            return
        assert self.picker.current is not before
        self.now = Running(wanted, revision_of(text), old)
        if wanted.place != old.wanted.place:
            self.move_to(wanted.place)

    @rule(
        wanted=CONFIGS,
        mistake=st.sampled_from(
            ["syntax", "type", "weight", "parameter", "no file", "no config", "handlers"]
        ),
    )
    def broken_configuration(self, wanted: Wanted, mistake: str) -> None:
        document, file = wanted.document(self.folder), self.folder / "config"
        if mistake == "type":
            document["plugins"].append({"type": "queue-scorrer"})
        elif mistake == "weight":
            document["plugins"].append({"type": "queue-scorer"})
            document["schedulingProfiles"][0]["plugins"].append({"pluginRef": "queue-scorer", "weight": -1})
        elif mistake == "parameter":
            document["plugins"][0]["parameters"]["pathh"] = "x"
        elif mistake == "no file":
            document["plugins"][0]["parameters"]["path"] = str(self.folder / "nowhere")
        elif mistake == "handlers":
            document["plugins"] += [
                {"type": "single-profile-handler"},
                {"name": "h", "type": "single-profile-handler"},
            ]
        text = yaml.safe_dump(document)
        file.write_text("plugins: [" if mistake == "syntax" else text)
        if mistake == "no config":
            file.unlink()
        before, version = self.picker.current, self.picker.table.version
        problems = self.run(self.picker.reload())
        assert problems
        assert self.picker.reloader.describe()["refused"] == problems
        assert self.picker.current is before
        assert self.picker.table.version == version

    # endpoints

    @rule(numbers=NUMBERS, moved=st.booleans())
    def endpoints_come_and_go(self, numbers: set[int], moved: bool) -> None:
        specs = [spec(number, "b" if moved and number % 3 == 0 else "") for number in sorted(numbers)]
        self.picker.current.discovery.apply(DiscoveredSet(specs, []))
        self.pool = {s.id: s for s in specs}

    # requests

    @rule(count=st.integers(1, 3))
    def requests_begin(self, count: int) -> None:
        self.requests += [Asked(self.picker.handler.open(), self.now) for _ in range(count)]

    @rule(
        data=st.data(),
        prompt=st.sampled_from(PROMPTS),
        session=st.sampled_from(SESSIONS),
        fresh=st.sampled_from([False, False, True]),
    )
    def a_request_is_complete(self, data: st.DataObject, prompt: str, session: str, fresh: bool) -> None:
        if fresh or not (waiting := [asked for asked in self.requests if not asked.prompt]):
            self.requests_begin(1)
            waiting = self.requests[-1:]
        asked = data.draw(st.sampled_from(waiting))
        asked.prompt = prompt
        running = asked.running
        wanted = running.wanted
        body = json.dumps({"model": "m", "prompt": prompt, "max_tokens": 5}).encode()
        headers = [("x-session-id", session)] if session else []
        eligible = {
            s.key: s for s in self.pool.values() if not wanted.zone or s.labels["zone"] == wanted.zone
        }
        request = http_request(*headers, body=body)
        if not eligible:
            refusal = FiltersDrainedError if self.pool else ServiceUnavailableError
            with pytest.raises(refusal):
                asked.exchange.on_request(request, lambda _: None)
            asked.exchange.on_end(Ending.REJECTED)
            self.requests.remove(asked)
            return
        decision = asked.exchange.on_request(request, lambda _: None)
        chosen = eligible[destination(decision)]
        pinned = running.pins.get(session) if wanted.session and session else None
        if pinned in {s.id for s in eligible.values()} and not wanted.is_scorer:
            assert chosen.id == pinned
        if wanted.session and session:
            running.pins[session] = chosen.id
        asked.endpoint = self.picker.table.at(chosen.key)
        assert asked.endpoint is not None
        record = asked.exchange._record
        assert record is not None
        assert record.config == running.revision
        assert (record.total_blocks > 0) == wanted.matches_prefixes
        if (prompt, asked.endpoint) in running.known:
            assert record.matched_blocks > 0

    @precondition(lambda self: any(asked.endpoint for asked in self.requests))
    @rule(data=st.data())
    def a_response_comes(self, data: st.DataObject) -> None:
        asked = data.draw(st.sampled_from([asked for asked in self.requests if asked.endpoint]))
        if not asked.computed:
            asked.exchange.on_response_headers(response(("content-type", "application/json")))
        asked.exchange.on_response_chunk(b'{"usage": ', end=False)
        asked.computed = True

    @precondition(lambda self: bool(self.requests))
    @rule(data=st.data(), ending=st.sampled_from([Ending.NATURAL, Ending.DISCONNECT, Ending.ERROR]))
    def a_request_ends(self, data: st.DataObject, ending: Ending) -> None:
        self.end(data.draw(st.sampled_from(self.requests)), ending)

    def end(self, asked: Asked, ending: Ending) -> None:
        self.requests.remove(asked)
        asked.exchange.on_end(ending)
        if asked.computed and asked.endpoint is not None and asked.running.wanted.matches_prefixes:
            asked.running.known.add((asked.prompt, asked.endpoint))

    # what holds after each step

    @invariant()
    def ledgers_agree(self) -> None:
        table = self.picker.table
        rows = table.all().endpoints
        assert {e.spec.id: e.spec for e in rows} == self.pool
        for endpoint in rows:
            mine = [asked for asked in self.requests if asked.endpoint is endpoint]
            assert table.inflight[endpoint.slot] == len(mine)
            tokens = table.inflight_tokens[endpoint.slot]
            assert tokens >= 0
            assert tokens == 0 or any(asked.running.wanted.load for asked in mine)
        assert table.inflight.sum() == sum(table.inflight[e.slot] for e in rows)
        assert table.inflight_tokens.sum() == sum(table.inflight_tokens[e.slot] for e in rows)

    @invariant()
    def the_newest_good_configuration_is_in_use(self) -> None:
        assert self.picker.reloader.revision == self.now.revision
        assert self.picker.handler.director.revision == self.now.revision
        assert self.picker.current.director is self.picker.handler.director

    @invariant()
    def pages_can_be_shown(self) -> None:
        pages = self.picker._pages()
        json.dumps(pages.config())
        assert len(pages.endpoints(100)["endpoints"]) == len(self.pool)
        for plugin in pages.plugins().values():
            if hasattr(plugin, "dump_state"):
                json.dumps(plugin.dump_state())
        "".join(self.picker.metrics.numbers.expose())


TestReloads = ReloadMachine.TestCase
TestReloads.settings = settings(max_examples=60, stateful_step_count=40)
