"""The conversation over streams that break: nothing ends it, and what is in use stays."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Sequence
from pathlib import Path

from dataplane.errors import ConfigError
from dataplane.xds.client import FATAL, FIRST_PAUSE_S, LONGEST_PAUSE_S, XdsClient
from dataplane.xds.messages import Node, Request, Resource, Response, Version, digest_of
from dataplane.xds.store import Store
from dataplane.xds.subscriber import Held, Subscriber

KIND = "t"


def sent(number: int, value: bytes) -> Response:
    resources = (Resource("pool", value),)
    return Response(KIND, str(Version(number, digest_of(resources))), f"n{number}", resources)


class Script:
    """A stream that says what it is given and then breaks, or waits if there is nothing to break it."""

    def __init__(self, *responses: Response, taken: bool = True) -> None:
        self.responses = list(responses)
        self.heard: list[Request] = []
        self.taken = taken
        self.closed = False

    async def send(self, request: Request) -> None:
        self.heard.append(request)

    async def established(self) -> None:
        if not self.taken:
            raise ConnectionError("refused")

    async def receive(self) -> Response:
        if not self.responses:
            raise ConnectionError("gone")
        return self.responses.pop(0)

    async def close(self) -> None:
        self.closed = True


class Site:
    """A client over scripted streams; it stops when they are used up."""

    def __init__(self, *streams: Script, store: Store | None = None) -> None:
        self.streams = list(streams)
        self.left = list(streams)
        self.pauses: list[float] = []
        self.judged: list[bytes] = []
        self.over = asyncio.Event()
        self.client = XdsClient(
            Subscriber(Node("w", "pool"), {KIND: ("pool",)}),
            self.open,
            self.judge,
            store,
            rng=random.Random(1),
            clock=lambda: 0.0,
            sleep=self.sleep,
        )

    async def open(self) -> Script:
        return self.left.pop(0)

    async def judge(self, type_url: str, held: Held) -> Sequence[ConfigError]:
        value = held.resources[0].value
        if value == b"bad":
            return [ConfigError("is bad", path="x")]
        self.judged.append(value)
        return ()

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        if not self.left:
            self.over.set()
            await asyncio.Event().wait()

    async def run(self) -> None:
        self.client.start()
        await self.over.wait()
        await self.client.stop()


async def test_each_set_is_judged_once_answered_and_asked_for_anew_after_a_break() -> None:
    site = Site(
        Script(sent(1, b"a"), sent(2, b"bad")), Script(sent(2, b"bad"), sent(3, b"b")), Script(sent(4, b"b"))
    )
    await site.run()
    assert site.judged == [b"a", b"b"]
    first, second, third = (stream.heard for stream in site.streams)
    assert [(each.nonce, each.refusal is None) for each in first] == [("", True), ("n1", True), ("n2", False)]
    assert second[0].version == first[1].version == sent(1, b"a").version
    assert second[0].node == Node("w", "pool")
    assert [each.version for each in third] == [sent(3, b"b").version, sent(4, b"b").version]
    assert site.client.refusal is None
    assert all(stream.closed for stream in site.streams)


async def test_pauses_double_with_a_share_of_chance_up_to_a_cap() -> None:
    site = Site(*(Script(taken=False) for _ in range(12)))
    await site.run()
    expected = FIRST_PAUSE_S
    for pause in site.pauses:
        assert 0.5 * expected <= pause < 1.5 * expected
        expected = min(expected * 2, LONGEST_PAUSE_S)
    assert (site.client.connected, site.client.failure) == (False, "refused")


async def test_what_is_accepted_is_on_disk_and_what_is_refused_is_not(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "last"), "pool")
    site = Site(Script(sent(1, b"a"), sent(2, b"bad")), store=store)
    await site.run()
    assert store.load()[KIND].resources == (Resource("pool", b"a"),)
    assert site.client.describe()["refused"] == "x: is bad"


async def test_a_set_that_ended_the_process_is_refused_when_it_comes_again_and_others_are_taken(
    tmp_path: Path,
) -> None:
    store = Store(str(tmp_path / "last"), "pool")
    first = Site(Script(sent(1, b"a"), sent(2, b"bad")), store=store)
    await first.run()
    assert store.unfinished() is None, "it has survived both, and was stopped in order"
    fatal = Version.parse(sent(2, b"deadly").version)
    assert fatal is not None
    store.begin(KIND, fatal)
    site = Site(Script(sent(2, b"deadly"), sent(3, b"deadly")), Script(sent(4, b"b")), store=store)
    await site.run()
    assert site.judged == [b"b"]
    told = [each.refusal.message for each in site.streams[0].heard if each.refusal is not None]
    assert told == [FATAL, FATAL]
    assert store.load()[KIND].resources == (Resource("pool", b"b"),)
    assert os.listdir(tmp_path) == ["last"]


async def test_stopping_in_the_middle_is_no_end_over_a_set(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "last"), "pool")
    site = Site(Script(sent(1, b"a")), store=store)
    begun = asyncio.Event()

    async def never(type_url: str, held: Held) -> Sequence[ConfigError]:
        begun.set()
        await asyncio.Event().wait()
        return ()

    site.client._judge = never
    site.client.start()
    await begun.wait()
    assert (tmp_path / "last.trying").exists()
    await site.client.stop()
    assert store.unfinished() is None


async def test_a_disk_that_takes_nothing_is_said_and_hinders_nothing(tmp_path: Path) -> None:
    (tmp_path / "no").write_text("a file")
    store = Store(str(tmp_path / "no" / "last"), "pool")
    site = Site(Script(sent(1, b"a")), store=store)
    await site.run()
    assert site.judged == [b"a"]
    assert site.client.describe()["storeFailure"] == f"{store.path}: Not a directory"
