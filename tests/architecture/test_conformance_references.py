"""Pages that say which test proves what name tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT

PAGES = sorted((ROOT / "docs" / "reference").glob("conformance*.md"))
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def defined(path: Path) -> set[str]:
    """Names of the functions at the top of a module; none when there is no such file."""
    if not path.exists():
        return set()
    body = ast.parse(path.read_text()).body
    return {node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_a_page_names_exists(page: Path):
    named = NAMED.findall(page.read_text())
    assert named
    assert [f"{file}::{name}" for file, name in named if name not in defined(ROOT / file)] == []
