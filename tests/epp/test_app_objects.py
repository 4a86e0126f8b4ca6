"""A whole picker with objects from files: what they do to requests, how they change, where they are shown."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from dataplane.errors import ConfigError
from dataplane.extproc.events import Proceed
from dataplane.extproc.exchange import Ending, HttpRequest
from dataplane.headers import Headers
from epp.app import Picker
from epp.options import EppOptions, parse_args
from tests.epp.objects.test_files import objective
from tests.support.waiting import until


class Site:
    """A picker over one endpoint, and its file of objects."""

    def __init__(self, folder: Path) -> None:
        self.endpoints = folder / "endpoints.yaml"
        self.endpoints.write_text("endpoints: [{name: a, address: 127.0.0.1, port: 1}]")
        self.objects = folder / "objects.yaml"
        self.objects.write_text(objective("gold", 10))
        self.picker = Picker(self.options())

    def options(self) -> EppOptions:
        flags = ["--host=127.0.0.1", "--secure-serving=false", "--pool-name=pool"]
        flags += ["--grpc-port=0", "--grpc-health-port=0", "--metrics-port=0"]
        return parse_args([*flags, f"--endpoints-file={self.endpoints}", f"--objects-file={self.objects}"])

    def priority(self) -> int:
        """The priority that the next request with the objective gets."""
        return int(self.decision()["priority"])

    def decision(self) -> dict[str, Any]:
        """The record of another request for the model ``m``."""
        fields = [(":path", "/v1/completions"), (":method", "POST"), ("x-llm-d-inference-objective", "gold")]
        exchange = self.picker.handler.open()
        body = json.dumps({"model": "m", "prompt": "x"}).encode()
        answer = exchange.on_request(HttpRequest(Headers.of(fields), body, None), lambda _: None)
        assert isinstance(answer, Proceed)
        exchange.on_end(Ending.NATURAL)
        (record,) = self.picker.decisions.recent(1)
        return dict(record)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """A running picker."""
    site = Site(tmp_path)
    await site.picker.start()
    yield site
    await site.picker.stop()


async def test_a_changed_document_decides_without_a_restart(site: Site) -> None:
    assert site.priority() == 10
    site.objects.write_text(objective("gold", 3))
    await until(lambda: site.priority() == 3)


async def test_a_changed_rewrite_names_another_model_without_a_restart(site: Site) -> None:
    assert site.decision()["targetModel"] == "m"
    for target in ("big", "small"):
        rules = f"[{{matches: [{{model: {{value: m}}}}], targets: [{{modelRewrite: {target}}}]}}]"
        site.objects.write_text(
            "apiVersion: pointsman.dev/v1\nkind: InferenceModelRewrite\nmetadata: {name: r}\n"
            f"spec: {{poolRef: {{name: pool}}, rules: {rules}}}\n"
        )
        await until(lambda target=target: site.decision()["targetModel"] == target)
    assert site.decision()["model"] == "m"


async def test_a_broken_document_changes_nothing_and_reload_says_why(site: Site) -> None:
    site.objects.write_text(objective("gold", "high"))
    url = f"http://127.0.0.1:{site.picker.admin.port}"
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{url}/debug/reload") as answer:
            refused = (await answer.json())["refused"]
            assert answer.status == 400
        assert refused[0].endswith("document 1 (from line 1): spec.priority: expected int, got str")
        assert site.priority() == 10
        async with session.get(f"{url}/debug/objects") as answer:
            shown = await answer.json()
        assert shown["problems"] == refused
        assert [(each["name"], each["priority"], each["outdated"]) for each in shown["objectives"]] == [
            ("gold", 10, True)
        ]
        async with session.get(f"{url}/metrics") as answer:
            lines = (await answer.text()).splitlines()
        assert 'pointsman_epp_objects{kind="InferenceObjective"} 1' in lines
        assert "pointsman_epp_objects_problems 2" in lines


async def test_a_missing_file_is_an_error_of_the_flag_and_nothing_stays_up(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.objects.unlink()
    with pytest.raises(ConfigError, match=r"^--objects-file .*objects\.yaml: cannot be read"):
        await site.picker.start()
    assert site.picker.admin.port == 0


async def test_without_the_flag_the_page_says_so(tmp_path: Path) -> None:
    file = tmp_path / "endpoints.yaml"
    file.write_text("endpoints: [{name: a, address: 127.0.0.1, port: 1}]")
    picker = Picker(parse_args([f"--endpoints-file={file}"]))
    assert picker._pages().objects(1) == {
        "message": "there are no objects: neither --objects-file nor --xds-server says from where"
    }
