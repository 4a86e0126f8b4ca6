"""A plugin is four things with one name: catalogue line, module, test module, documentation page."""

import importlib
import importlib.util
import re
from collections.abc import Mapping
from typing import NamedTuple

import pytest

from dataplane.plugin.base import PluginParams
from tests.architecture.tree import ROOT

HEADINGS = ["Type", "What it does", "When to use it", "Inputs", "Parameters", "Example", "Metrics"]


class Kind(NamedTuple):
    """A process with plugins."""

    catalogue_module: str
    pages: str
    tests: str


PICKER = Kind("epp.plugins.catalog", "docs/plugins", "tests/epp/plugins")
PROCESSOR = Kind("ipp.registry", "docs/plugins-ipp", "tests/ipp")

processes = pytest.mark.parametrize("of", [PICKER, PROCESSOR], ids=["picker", "processor"])


def catalogue(of: Kind = PICKER) -> Mapping[str, str]:
    """The built-in plugins of a process: type -> `module:Class`."""
    if importlib.util.find_spec(of.catalogue_module) is None:
        return {}
    found: Mapping[str, str] = importlib.import_module(of.catalogue_module).BUILTIN
    return found


def plugin_class(location: str) -> type:
    """The class a catalogue line names."""
    module, _, name = location.partition(":")
    found: type = getattr(importlib.import_module(module), name)
    return found


def headings(of: Kind, plugin_type: str) -> list[str]:
    """The second-level headings of a plugin's page, in order; none when there is no page."""
    page = ROOT / of.pages / f"{plugin_type}.md"
    return re.findall(r"^## (.+)$", page.read_text(), flags=re.MULTILINE) if page.exists() else []


@processes
def test_every_plugin_has_a_page_with_the_standard_headings(of: Kind):
    found = {kind: headings(of, kind) for kind in catalogue(of)}
    assert {kind: titles for kind, titles in found.items() if titles != HEADINGS} == {}


@processes
def test_every_page_names_the_plugins_parameters(of: Kind):
    silent = {}
    for kind, location in catalogue(of).items():
        page = ROOT / of.pages / f"{kind}.md"
        text = page.read_text() if page.exists() else ""
        fields = plugin_class(location).info.params.__struct_encode_fields__
        if missing := [field for field in fields if f"`{field}`" not in text]:
            silent[kind] = missing
    assert silent == {}


def index(of: Kind) -> dict[str, str]:
    """Type -> heading it is listed under in the index of plugins."""
    found = {}
    for section in re.split(r"^## ", (ROOT / of.pages / "README.md").read_text(), flags=re.MULTILINE)[1:]:
        for kind, page in re.findall(r"^- \[(.+?)\]\((.+?)\): \S", section, flags=re.MULTILINE):
            found[kind] = section.partition("\n")[0] if page == f"{kind}.md" else f"wrong link {page}"
    return found


@processes
def test_index_lists_every_plugin_under_its_kind_and_no_other(of: Kind):
    kinds = {kind: location.split(".")[2] for kind, location in catalogue(of).items()}
    wanted = {kind: folder.replace("_", " ").capitalize() for kind, folder in kinds.items()}
    listed = index(of)
    assert {kind: heading for kind, heading in wanted.items() if kind not in listed} == {}
    assert {kind: heading for kind, heading in listed.items() if wanted.get(kind) != heading} == {}


@processes
def test_index_is_sorted_by_type_within_a_kind(of: Kind):
    listed = list(index(of).items())
    headings = list(dict.fromkeys(heading for _, heading in listed))
    assert listed == sorted(listed, key=lambda item: (headings.index(item[1]), item[0]))


@processes
def test_every_page_belongs_to_a_plugin(of: Kind):
    pages = {page.stem for page in (ROOT / of.pages).glob("*.md")} - {"README"}
    assert pages - set(catalogue(of)) == set()


@processes
def test_every_plugin_module_has_a_test_module(of: Kind):
    present = {path.name for path in (ROOT / of.tests).rglob("test_*.py")}
    modules = {location.partition(":")[0].rpartition(".")[2] for location in catalogue(of).values()}
    assert {module for module in modules if f"test_{module}.py" not in present} == set()


@processes
def test_every_catalogue_line_names_a_class_of_that_type(of: Kind):
    found = {kind: plugin_class(location).info.type for kind, location in catalogue(of).items()}
    assert {kind: named for kind, named in found.items() if named != kind} == {}


def test_the_guide_describes_only_states_that_plugins_show():
    guide = (ROOT / "docs/guides/observability.md").read_text()
    table = guide.partition("| plugin | state |\n")[2].partition("\n\n")[0]
    listed = re.findall(r"`([a-z0-9-]+)`", "".join(re.findall(r"^\| (`.+?`) \|", table, re.MULTILINE)))
    classes = {kind: plugin_class(location) for kind, location in catalogue().items()}
    assert [kind for kind in listed if not hasattr(classes.get(kind), "dump_state")] == []
    assert len(listed) > 5


@processes
def test_every_plugin_refuses_unknown_parameters(of: Kind):
    params = {kind: plugin_class(location).info.params for kind, location in catalogue(of).items()}
    lax = {
        kind
        for kind, struct in params.items()
        if not (issubclass(struct, PluginParams) and struct.__struct_config__.forbid_unknown_fields)
    }
    assert lax == set()
