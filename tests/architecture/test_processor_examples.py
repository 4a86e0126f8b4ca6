"""The configurations of payload processors on the documentation's pages load as they stand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from dataplane.config.problems import ConfigErrors
from ipp.model_file import read_models
from tests.architecture.tree import ROOT
from tests.support.processors import pipeline_of

PAGES = [*sorted((ROOT / "docs/plugins-ipp").glob("*.md")), ROOT / "docs/guides/model-selection.md"]


def blocks(page: Path, language: str) -> list[str]:
    """The page's examples in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL)


WHOLE: dict[str, dict[str, Any]] = {}
FRAGMENTS: dict[str, dict[str, Any]] = {}
for each in PAGES:
    for number, block in enumerate(blocks(each, "yaml")):
        document = yaml.safe_load(block)
        (WHOLE if document.keys() >= {"plugins", "profiles"} else FRAGMENTS)[f"{each.stem}-{number}"] = (
            document
        )


@pytest.mark.parametrize("document", FRAGMENTS.values(), ids=FRAGMENTS)
def test_the_plugins_of_a_fragment_take_their_parameters(document: dict[str, Any]):
    with pytest.raises(ConfigErrors) as caught:
        pipeline_of(document)
    assert [str(error) for error in caught.value.errors if str(error).startswith("plugins")] == []


def test_whole_documents_load():
    assert "model-selection-0" in WHOLE
    pipeline = pipeline_of(WHOLE["model-selection-0"])
    assert list(pipeline.warnings) == []


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "json")], ids=lambda page: page.stem)
def test_lists_of_models_are_lists_of_models(page: Path):
    for block in blocks(page, "json"):
        problems: list[Any] = []
        assert read_models(block.encode(), problems)
        assert problems == []
