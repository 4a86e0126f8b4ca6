"""The page of conformance names tests that are there."""

import re

from tests.architecture.tree import ROOT

PAGE = ROOT / "docs/reference/conformance.md"


def test_every_test_that_the_page_names_is_there():
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", PAGE.read_text())
    assert len(named) > 50
    missing = {
        f"{path}::{name}"
        for path, name in named
        if not (ROOT / path).is_file() or f"def {name}(" not in (ROOT / path).read_text()
    }
    assert missing == set()


def test_every_case_has_a_test_or_says_with_what_it_comes():
    rows = re.findall(r"^\| ([\d, b]+) \| (.+) \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    assert len(rows) > 45
    assert {case for case, _, test in rows if "::" not in test} == {"45, 46, 48, 49, 50"}
