"""A plugin type is in the catalogue or in the list of absent ones, never in both."""

import importlib.util
import re

from tests.architecture.tree import ROOT


def table(module: str, name: str) -> dict[str, str]:
    """A table of the picker's plugins; empty when there is no such module."""
    if importlib.util.find_spec(module) is None:
        return {}
    return dict(getattr(importlib.import_module(module), name))


def test_no_plugin_is_both_there_and_absent():
    both = set(table("epp.plugins.absent", "ABSENT")) & set(table("epp.plugins.catalog", "BUILTIN"))
    assert both == set(), "remove these lines from epp/plugins/absent.py"


def test_the_reference_lists_exactly_the_absent_plugins():
    page = (ROOT / "docs/reference/config.md").read_text()
    rows = page.partition("| missing | types |\n")[2].partition("\n\n")[0]
    listed = re.findall(r"`([\w-]+)`", rows)
    absent = list(table("epp.plugins.absent", "ABSENT"))
    assert sorted(listed) == sorted(absent), "mend the table of missing plugins in docs/reference/config.md"
