"""Base models in files: ConfigMaps of the field and plain documents, followed, and really removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from dataplane.config.document_files import DocumentFiles
from dataplane.config.problems import ConfigErrors
from dataplane.errors import ConfigError
from ipp.base_model_files import read_mappings
from ipp.base_models import BaseModelMapping
from ipp.plugins.processors import base_model_to_header
from tests.support.processors import Rig, headers_of, one_profile
from tests.support.waiting import until

CONFIG_MAP = """
apiVersion: v1
kind: ConfigMap
metadata:
  name: qwen
  labels: {inference.llm-d.ai/ipp-managed: "true"}
data:
  baseModel: " qwen "
  adapters: |
    - sql-lora
    -
    - " spaced "
    - 1
"""
BASE = "x-gateway-base-model-name"


def rig(path: Path) -> Rig:
    plugin = {"type": "base-model-to-header", "parameters": {"path": str(path)}}
    return Rig(one_profile([plugin]))


def base(processor: Rig, model: str) -> str:
    return headers_of(processor.ask({"model": model}))[BASE]


def test_config_maps_are_read_as_the_field_writes_them(tmp_path: Path) -> None:
    file = tmp_path / "maps.yaml"
    unlabelled = CONFIG_MAP.replace('ipp-managed: "true"', 'other: "true"')
    plain = "baseModel: llama\naliases: [fast]\n"
    file.write_text("---".join([CONFIG_MAP, unlabelled, f"\n{plain}", "\n- baseModel: a\n- baseModel: b\n"]))
    problems: list[ConfigError] = []
    found = read_mappings(DocumentFiles(str(file)), problems)
    assert problems == []
    assert [mapping for _, mapping in found] == [
        BaseModelMapping(base_model="qwen", adapters=["sql-lora", "spaced", "1"]),
        BaseModelMapping(base_model="llama", aliases=["fast"]),
        BaseModelMapping(base_model="a"),
        BaseModelMapping(base_model="b"),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (CONFIG_MAP.replace("baseModel", "base"), "data.baseModel: is missing"),
        (CONFIG_MAP.replace("    - sql-lora", "    {a: 1}").replace("- ", ""), "data.adapters"),
        ("baseModle: x\n", 'baseModle: unknown field (did you mean "baseModel"?)'),
        ("- 5\n", "must be a mapping with baseModel, or a ConfigMap"),
        ("a: [\n", "line "),
    ],
)
async def test_a_file_with_a_mistake_is_refused_at_the_start(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "maps.yaml"
    file.write_text(text)
    processor = rig(file)
    with pytest.raises(ConfigErrors) as caught:
        await processor.pipeline.start()
    assert str(file) in str(caught.value.errors[0])
    assert said in str(caught.value.errors[0])


async def test_a_path_that_is_not_there_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigErrors) as caught:
        await rig(tmp_path / "no").pipeline.start()
    assert str(caught.value.errors[0]) == f"{tmp_path / 'no'}: cannot be read: No such file or directory"


async def test_a_folder_is_followed_and_what_goes_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base_model_to_header, "POLL_S", 0.01)
    (tmp_path / "one.yaml").write_text("baseModel: one\nadapters: [x]\n")
    (tmp_path / "two.yaml").write_text("baseModel: two\n")
    (tmp_path / "ignored.txt").write_text("{")
    processor = rig(tmp_path)
    await processor.pipeline.start()
    try:
        assert (base(processor, "x"), base(processor, "two")) == ("one", "two")
        (tmp_path / "one.yaml").unlink()
        await until(lambda: base(processor, "x") == "")
        assert (base(processor, "one"), base(processor, "two")) == ("", "two")
        (tmp_path / "two.yaml").write_text("baseModel: [\n")
        plugin = processor.pipeline.instances["base-model-to-header"]
        await until(lambda: bool(plugin.dump_state()["problems"]))
        assert base(processor, "two") == "two"
        (tmp_path / "two.yaml").write_text("baseModel: three\n")
        await until(lambda: base(processor, "three") == "three")
        assert base(processor, "two") == ""
        assert plugin.dump_state() == {"names": 1, "problems": []}
    finally:
        await processor.pipeline.close()
