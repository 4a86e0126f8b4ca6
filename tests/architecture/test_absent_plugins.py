"""A plugin type is in the catalogue or in the list of absent ones, never in both."""

import importlib.util

from tests.architecture.tree import ROOT


def table(module: str, name: str) -> dict[str, str]:
    """A table of the picker's plugins; empty when there is no such module."""
    if importlib.util.find_spec(module) is None:
        return {}
    return dict(getattr(importlib.import_module(module), name))


def test_no_plugin_is_both_there_and_absent():
    both = set(table("epp.plugins.absent", "ABSENT")) & set(table("epp.plugins.catalog", "BUILTIN"))
    assert both == set(), "remove these lines from epp/plugins/absent.py"


def test_the_reference_lists_every_absent_plugin():
    page = (ROOT / "docs/reference/config.md").read_text()
    assert [kind for kind in table("epp.plugins.absent", "ABSENT") if f"`{kind}`" not in page] == []
