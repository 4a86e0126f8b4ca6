"""Which base model, and so which pool, a model is sent to, while mappings come, change and go."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from dataplane.config.given import Given
from dataplane.config.problems import ConfigErrors
from dataplane.extproc.events import Proceed
from dataplane.extproc.exchange import HttpRequest
from dataplane.headers import Headers
from ipp.app import Processor
from ipp.options import parse_args
from ipp.plugins.processors import base_model_to_header
from tests.support.processors import Rig, headers_of, one_profile
from tests.support.waiting import until

BASE = "x-gateway-base-model-name"
TYPE = "base-model-to-header"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_model_to_header, "POLL_S", 0.01)


def rig_of(path: Path, *mappings: dict[str, Any]) -> Rig:
    parameters = {"path": str(path), "mappings": list(mappings)}
    return Rig(one_profile([{"type": TYPE, "parameters": parameters}]))


def base(rig: Rig, model: str) -> str:
    return headers_of(rig.ask({"model": model}))[BASE]


def problems(rig: Rig) -> list[str]:
    found: Any = rig.pipeline.instances[TYPE]
    return list(found.dump_state()["problems"])


def config_map(name: str, base_model: str, *adapters: str, label: str = "true") -> str:
    listed = "".join(f"    - {adapter}\n" for adapter in adapters)
    return (
        f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n"
        f'  labels: {{inference.llm-d.ai/ipp-managed: "{label}"}}\n'
        f"data:\n  baseModel: {base_model}\n  adapters: |\n{listed}"
    )


def mount(folder: Path, number: int, **files: str) -> None:
    """What the kubelet does: a new folder, and a link to it that takes the place of the old one at once."""
    folder.mkdir(exist_ok=True)
    data = folder / f"..{number}"
    data.mkdir()
    for name, text in files.items():
        (data / name).write_text(text)
    link, data_link = folder / "..new", folder / "..data"
    os.symlink(data.name, link)
    os.replace(link, data_link)
    for name in files:
        if not (folder / name).is_symlink():
            os.symlink(f"..data/{name}", folder / name)
    for each in folder.iterdir():
        if each.is_symlink() and not each.exists():
            each.unlink()


async def test_a_mounted_config_map_is_followed_through_its_links(tmp_path: Path) -> None:
    mount(tmp_path / "qwen", 1, baseModel="qwen\n", adapters="- sql\n- chat\n")
    mount(tmp_path / "llama", 1, baseModel="llama")
    rig = rig_of(tmp_path)
    await rig.pipeline.start()
    try:
        assert [base(rig, model) for model in ("qwen", "sql", "chat", "llama", "x")] == [
            "qwen",
            "qwen",
            "qwen",
            "llama",
            "",
        ]
        mount(tmp_path / "qwen", 2, baseModel="qwen\n", adapters="- sql\n")
        await until(lambda: base(rig, "chat") == "")
        assert (base(rig, "sql"), base(rig, "qwen")) == ("qwen", "qwen")
        # Another base model: nothing of the old one stays.
        mount(tmp_path / "qwen", 3, baseModel="qwen3", adapters="- sql\n")
        await until(lambda: base(rig, "sql") == "qwen3")
        assert (base(rig, "qwen"), base(rig, "qwen3")) == ("", "qwen3")
        # A mistake keeps what there is, and says where it is.
        mount(tmp_path / "qwen", 4, baseModel="qwen3", adapters="{a: 1}")
        await until(lambda: bool(problems(rig)))
        assert problems(rig) == [f"{tmp_path / 'qwen'}.adapters: must be a YAML list of names"]
        assert base(rig, "sql") == "qwen3"
        mount(tmp_path / "qwen", 5, adapters="- sql\n")
        await until(lambda: base(rig, "sql") == "")
        assert (base(rig, "llama"), problems(rig)) == ("llama", [])
    finally:
        await rig.pipeline.close()


async def test_documents_in_a_mounted_config_map_are_followed_through_its_links(tmp_path: Path) -> None:
    folder = tmp_path / "maps"
    mount(folder, 1, **{"maps.yaml": "baseModel: a\naliases: [x]\n---\nbaseModel: b\n"})
    rig = rig_of(folder)
    await rig.pipeline.start()
    try:
        assert (base(rig, "x"), base(rig, "b")) == ("a", "b")
        mount(folder, 2, **{"maps.yaml": "baseModel: b\n"})
        await until(lambda: base(rig, "x") == "")
        assert (base(rig, "a"), base(rig, "b")) == ("", "b")
    finally:
        await rig.pipeline.close()


async def test_an_adapter_of_two_config_maps_is_refused_and_belongs_to_the_one_that_stays(
    tmp_path: Path,
) -> None:
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    one.write_text(config_map("one", "qwen", "shared", "only"))
    rig = rig_of(tmp_path)
    await rig.pipeline.start()
    try:
        assert base(rig, "shared") == "qwen"
        two.write_text(config_map("two", "llama", "shared"))
        await until(lambda: bool(problems(rig)))
        (said,) = problems(rig)
        assert said.startswith(f"{two}: ")
        assert "'shared' is also in" in said
        assert said.endswith("a name has one base model")
        assert (base(rig, "shared"), base(rig, "llama")) == ("qwen", "")
        one.unlink()
        await until(lambda: base(rig, "shared") == "llama")
        assert (base(rig, "only"), base(rig, "qwen"), problems(rig)) == ("", "", [])
        # Without the label it is no longer for us.
        two.write_text(config_map("two", "llama", "shared", label="false"))
        await until(lambda: base(rig, "shared") == "")
    finally:
        await rig.pipeline.close()


async def test_several_config_maps_of_one_base_model_are_counted_apart(tmp_path: Path) -> None:
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    one.write_text(config_map("one", "qwen", "a"))
    two.write_text(config_map("two", "qwen", "b"))
    rig = rig_of(tmp_path, {"baseModel": "qwen", "aliases": ["fast"]})
    await rig.pipeline.start()
    try:
        assert [base(rig, model) for model in ("a", "b", "fast", "qwen")] == ["qwen"] * 4
        one.unlink()
        await until(lambda: base(rig, "a") == "")
        assert [base(rig, model) for model in ("b", "fast", "qwen")] == ["qwen"] * 3
    finally:
        await rig.pipeline.close()


CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: PayloadProcessorConfig
plugins:
- type: base-model-to-header
  parameters: {mappings: MAPPINGS}
profiles:
- {name: default, plugins: {request: [{pluginRef: base-model-to-header}]}}
"""
FREE = (
    "--host=127.0.0.1",
    "--grpc-port=0",
    "--grpc-health-port=0",
    "--metrics-port=0",
    "--secure-serving=false",
)


async def test_what_a_control_plane_takes_out_of_a_configuration_is_gone_for_new_requests() -> None:
    processor = Processor(parse_args([*FREE, f"--config-text={CONFIG.replace('MAPPINGS', '[]')}"]))

    def found(*models: str) -> list[str]:
        said = []
        for model in models:
            exchange, body = processor.handler.open(), b'{"model": "%b"}' % model.encode()
            decision = exchange.on_request(HttpRequest(Headers.of([]), body, None), lambda _: None)
            assert isinstance(decision, Proceed)
            said.append(headers_of(decision)[BASE])
        return said

    async def send(number: int, mappings: str) -> list[str]:
        text = CONFIG.replace("MAPPINGS", mappings).encode()
        return [str(error) for error in await processor.reloader.take(Given(text, f"c/{number}@x"))]

    await processor.start()
    try:
        models = ("qwen", "sql", "fast", "qwen-7b", "anything")
        qwen = '{baseModel: qwen, adapters: [sql], aliases: [fast], patterns: ["qwen-*"]}'
        assert await send(1, f'[{qwen}, {{baseModel: d, patterns: ["*"]}}]') == []
        assert found(*models) == ["qwen", "qwen", "qwen", "qwen", "d"]
        assert await send(2, "[{baseModel: qwen}]") == []
        assert found(*models) == ["qwen", "", "", "", ""]
        refused = await send(3, "[{baseModel: qwen, aliases: [x]}, {baseModel: b, aliases: [x]}]")
        assert len(refused) == 1
        assert found(*models) == ["qwen", "", "", "", ""]
        assert await processor.reloader.take(None) == []
        assert found(*models) == [""] * 5
    finally:
        await processor.stop()


async def test_a_folder_with_too_much_or_broken_is_refused_at_the_start(tmp_path: Path) -> None:
    mount(tmp_path / "bad", 1, baseModel="", adapters="- x\n")
    (tmp_path / "worse").mkdir()
    (tmp_path / "worse" / "baseModel").mkdir()
    with pytest.raises(ConfigErrors) as caught:
        await rig_of(tmp_path).pipeline.start()
    assert [str(error).removeprefix(str(tmp_path)) for error in caught.value.errors] == [
        "/bad.baseModel: expected str of length >= 1",
        "/worse.baseModel: is not a regular file",
    ]
