"""Policies of files in a whole processor: what a start says, what a change says, and who enforces them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ipp.app import UNENFORCED, Processor
from ipp.options import parse_args
from tests.ipp.test_app import FREE, page

CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: PayloadProcessorConfig
plugins: [{type: guardrails}]
profiles:
- {name: default, plugins: {request: [{pluginRef: guardrails}]}}
"""
POLICY = """
apiVersion: pointsman.dev/v1
kind: GuardrailPolicy
metadata: {name: house}
spec:
  rules: [{name: words, type: keywords, parameters: {words: [zebra]}}]
"""
GAUGE = "pointsman_ipp_policies_last_reload_successful"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "processor.yaml").write_text(CONFIG)
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "a.yaml").write_text(POLICY)
    return tmp_path


def flags(folder: Path, config: str = "processor.yaml") -> list[str]:
    files = [f"--config-file={folder / config}"] if config else []
    return [*FREE, *files, f"--policies-file={folder / 'policies'}", "--watch-config=false"]


async def test_two_policies_of_one_name_change_nothing_and_are_told_with_their_places(folder: Path) -> None:
    processor = Processor(parse_args(flags(folder)))
    await processor.start()
    try:
        (folder / "policies" / "b.yaml").write_text(POLICY)
        _, said = await page(processor, "/debug/reload", post=True)
        places = [f"{folder / 'policies' / name}: document 1 (from line 1)" for name in ("a.yaml", "b.yaml")]
        problem = f"{places[1]}: is the second policy named 'house'; the first is {places[0]}"
        assert said == {"refused": [problem]}
        _, shown = await page(processor, "/debug/config")
        assert (shown["policyProblems"], shown["guardrails"]["policies"]) == ([problem], ["house"])
        assert f"\n{GAUGE} 0\n" in (await page(processor, "/metrics"))[1]
        (folder / "policies" / "b.yaml").unlink()
        assert await page(processor, "/debug/reload", post=True) == (200, {"refused": []})
        assert f"\n{GAUGE} 1\n" in (await page(processor, "/metrics"))[1]
    finally:
        await processor.stop()


def test_policies_that_cannot_be_read_end_the_start_and_the_flag_is_named(folder: Path) -> None:
    (folder / "policies" / "a.yaml").write_text(POLICY.replace("keywords", "keyword"))
    command = [sys.executable, "-m", "cli.main", "ipp", *flags(folder)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith(
        f"pointsman ipp: --policies-file: {folder / 'policies' / 'a.yaml'}: document 1"
    )


@pytest.mark.parametrize(("config", "warnings"), [("processor.yaml", []), ("", [UNENFORCED])])
async def test_policies_that_nothing_enforces_are_warned_of(
    folder: Path, config: str, warnings: list[str]
) -> None:
    processor = Processor(parse_args(flags(folder, config)))
    await processor.start()
    try:
        _, shown = await page(processor, "/debug/config")
        assert shown["warnings"] == warnings
    finally:
        await processor.stop()
