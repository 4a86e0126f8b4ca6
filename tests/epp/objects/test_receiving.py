"""The receiver between the conversation and the holder: starts from disk, and survives what is on it."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dataplane.config.given import Given
from dataplane.errors import ConfigError
from dataplane.observability.exposition import MetricSet
from dataplane.xds.codec import wrapped
from dataplane.xds.messages import PICKER_CONFIG, POOL_OBJECTS, Node, Resource, Version, digest_of
from dataplane.xds.store import Store
from dataplane.xds.subscriber import Held
from dataplane.xds.transport import ServerAddress
from epp.objects.receiving import ObjectReceiver
from epp.objects.snapshot import ObjectHolder
from tests.epp.objects.test_received import document

NOBODY = "127.0.0.1:1"
"""An address where nothing listens."""


def held(number: int, *documents: Any, name: str = "pool") -> Held:
    payload = json.dumps({"documents": documents}).encode()
    resources = (Resource(name, wrapped(payload)),)
    return Held(Version(number, digest_of(resources)), resources)


class Site:
    """A receiver without a control plane."""

    def __init__(self, folder: Path, server: ServerAddress | None = None) -> None:
        self.file = folder / "last-good"
        self.store = Store(str(self.file), "pool")
        self.holder = ObjectHolder()
        self.metrics = MetricSet()
        self.taken: list[Given | None] = []
        self.receiver = ObjectReceiver(
            server or ServerAddress(target=NOBODY),
            Node("w", "pool"),
            str(self.file),
            self.holder,
            self.metrics,
            self.take,
            rng=random.Random(1),
            first_wait_s=0.01,
        )

    async def take(self, given: Given | None) -> list[ConfigError]:
        self.taken.append(given)
        is_bad = given is not None and b"bad" in given.text
        return [ConfigError("is bad", path="plugins[0]")] if is_bad else []

    async def judge(self, what: Held) -> list[str]:
        problems: Sequence[ConfigError] = await self.receiver._judge(POOL_OBJECTS, what)
        return [str(problem) for problem in problems]

    async def started(self) -> dict[str, Any]:
        await self.receiver.load()
        try:
            return self.receiver.describe(10)
        finally:
            await self.receiver.stop()

    def exposed(self) -> str:
        return "".join(self.metrics.expose())


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


async def test_a_start_without_anything_serves_without_objects(site: Site) -> None:
    page = await site.started()
    assert (page["objectives"], page["controlPlane"]["server"]) == ([], NOBODY)
    assert "pointsman_epp_control_plane_connected 0" in site.exposed()


async def test_a_start_from_disk_is_as_it_was(site: Site) -> None:
    site.store.save({POOL_OBJECTS: held(3, document("gold", priority=7))})
    page = await site.started()
    assert site.holder.current.priority_of("gold") == 7
    assert page["controlPlane"]["versions"] == {
        POOL_OBJECTS: str(held(3, document("gold", priority=7)).version)
    }


@pytest.mark.parametrize("spoiled", ["damaged", "refused", "another resource"])
async def test_a_disk_that_holds_nothing_good_is_said_and_hinders_nothing(site: Site, spoiled: str) -> None:
    bad = {
        "damaged": held(3),
        "refused": held(3, document("gold", priority="high")),
        "another resource": held(3, name="other"),
    }[spoiled]
    site.store.save({POOL_OBJECTS: bad})
    if spoiled == "damaged":
        site.file.write_bytes(site.file.read_bytes() + b" ")
    page = await site.started()
    assert page["controlPlane"]["versions"] == {}
    said = page["controlPlane"].get("cacheFailure") or page["problems"][0]
    expected = {
        "damaged": "is damaged",
        "refused": "documents[0].spec.priority: expected int, got str",
        "another resource": "are not those of the pool pool alone",
    }
    assert expected[spoiled] in said


async def test_a_refused_set_changes_nothing_and_is_counted(site: Site) -> None:
    assert await site.judge(held(1, document("gold", priority=7))) == []
    in_use = site.holder.current
    assert await site.judge(held(2, document("gold", priority="high"))) == [
        "documents[0].spec.priority: expected int, got str"
    ]
    assert site.holder.current is in_use
    assert site.receiver.describe(10)["problems"][0].startswith("2.")
    exposed = site.exposed()
    assert 'pointsman_epp_objects_reloads_total{outcome="refused"} 1' in exposed
    assert "pointsman_epp_objects_problems 1" in exposed
    assert await site.judge(held(3, document("gold", priority=8))) == []
    assert await site.receiver.reload() == []


async def test_an_empty_set_takes_everything_away_and_what_is_no_message_is_refused(site: Site) -> None:
    await site.judge(held(1, document("gold", priority=7)))
    assert await site.judge(held(2)) == []
    assert site.holder.current.priority_of("gold") == 0
    resources = (Resource("pool", b"\xff"),)
    assert await site.judge(Held(Version(3, digest_of(resources)), resources)) == [
        "is no message of its type"
    ]


@pytest.mark.parametrize(("name", "said"), [("token_file", "holds no token"), ("ca_file", "cannot be read")])
async def test_files_that_are_no_good_end_the_start(tmp_path: Path, name: str, said: str) -> None:
    file = tmp_path / "file"
    if name == "token_file":
        file.write_text(" \n")
    site = Site(tmp_path, ServerAddress(target=NOBODY, **{name: str(file)}))
    with pytest.raises(ConfigError, match=f"file: {said}"):
        await site.receiver.load()


def configured(number: int, content: str, *, digest: str | None = None) -> Held:
    """A set with revision ``number`` of a configuration."""
    right = hashlib.sha256(content.encode()).hexdigest()
    said = {"content": json.loads(content), "digest": digest or right, "document": "chat", "revision": number}
    payload = json.dumps(said | {"rollout": 1}, separators=(",", ":")).encode()
    resources = (Resource("pool", wrapped(payload)),)
    return Held(Version(number, digest_of(resources)), resources)


async def test_a_configuration_is_run_with_its_name_number_and_digest_until_there_is_none(site: Site) -> None:
    held_ = configured(5, '{"plugins":[]}')
    assert list(await site.receiver._judge(PICKER_CONFIG, held_)) == []
    digest = hashlib.sha256(b'{"plugins":[]}').hexdigest()
    assert site.taken == [Given(b'{"plugins":[]}', f"chat/5@{digest[:12]}")]
    await site.receiver._judge(PICKER_CONFIG, Held(Version(6, digest_of(())), ()))
    assert site.taken[1:] == [None]


async def test_what_is_no_configuration_or_is_refused_is_told_with_its_path(site: Site) -> None:
    async def told(held_: Held) -> list[str]:
        return [str(problem) for problem in await site.receiver._judge(PICKER_CONFIG, held_)]

    assert await told(configured(5, '{"plugins":"bad"}')) == ["plugins[0]: is bad"]
    assert await told(configured(5, "{}", digest="0" * 64)) == ["content: is not the text of the digest"]
    (said,) = await told(held(5))
    assert said.startswith("is no configuration of a control plane: ")
    assert len(site.taken) == 1


async def test_a_start_from_disk_runs_the_last_configuration(site: Site) -> None:
    last = configured(5, '{"plugins":[]}')
    site.store.save({POOL_OBJECTS: held(3), PICKER_CONFIG: last})
    page = await site.started()
    assert page["controlPlane"]["versions"][PICKER_CONFIG] == str(last.version)
    assert [given.revision[:7] for given in site.taken if given is not None] == ["chat/5@"]
