"""A plugin is four things with one name: catalogue line, module, test module, documentation page."""

import importlib
import importlib.util
import re
from collections.abc import Mapping

from dataplane.plugin.base import PluginParams
from tests.architecture.tree import ROOT

HEADINGS = ["Type", "What it does", "When to use it", "Inputs", "Parameters", "Example", "Metrics"]


def catalogue() -> Mapping[str, str]:
    """The picker's built-in plugins: type -> `module:Class`."""
    if importlib.util.find_spec("epp.plugins.catalog") is None:
        return {}
    found: Mapping[str, str] = importlib.import_module("epp.plugins.catalog").BUILTIN
    return found


def plugin_class(location: str) -> type:
    """The class a catalogue line names."""
    module, _, name = location.partition(":")
    found: type = getattr(importlib.import_module(module), name)
    return found


def headings(plugin_type: str) -> list[str]:
    """The second-level headings of a plugin's page, in order; none when there is no page."""
    page = ROOT / f"docs/plugins/{plugin_type}.md"
    return re.findall(r"^## (.+)$", page.read_text(), flags=re.MULTILINE) if page.exists() else []


def test_every_plugin_has_a_page_with_the_standard_headings():
    assert {kind: headings(kind) for kind in catalogue() if headings(kind) != HEADINGS} == {}


def test_every_page_names_the_plugins_parameters():
    silent = {}
    for kind, location in catalogue().items():
        page = ROOT / f"docs/plugins/{kind}.md"
        text = page.read_text() if page.exists() else ""
        fields = plugin_class(location).info.params.__struct_encode_fields__
        if missing := [field for field in fields if f"`{field}`" not in text]:
            silent[kind] = missing
    assert silent == {}


def index() -> dict[str, str]:
    """Type -> heading it is listed under in the index of plugins."""
    found = {}
    for section in re.split(r"^## ", (ROOT / "docs/plugins/README.md").read_text(), flags=re.MULTILINE)[1:]:
        for kind, page in re.findall(r"^- \[(.+?)\]\((.+?)\): \S", section, flags=re.MULTILINE):
            found[kind] = section.partition("\n")[0] if page == f"{kind}.md" else f"wrong link {page}"
    return found


def test_index_lists_every_plugin_under_its_kind_and_no_other():
    kinds = {kind: location.split(".")[2] for kind, location in catalogue().items()}
    wanted = {kind: folder.replace("_", " ").capitalize() for kind, folder in kinds.items()}
    listed = index()
    assert {kind: heading for kind, heading in wanted.items() if kind not in listed} == {}
    assert {kind: heading for kind, heading in listed.items() if wanted.get(kind) != heading} == {}


def test_index_is_sorted_by_type_within_a_kind():
    listed = list(index().items())
    headings = list(dict.fromkeys(heading for _, heading in listed))
    assert listed == sorted(listed, key=lambda item: (headings.index(item[1]), item[0]))


def test_every_page_belongs_to_a_plugin():
    pages = {page.stem for page in (ROOT / "docs/plugins").glob("*.md")} - {"README"}
    assert pages - set(catalogue()) == set()


def test_every_plugin_module_has_a_test_module():
    present = {path.name for path in (ROOT / "tests/epp/plugins").rglob("test_*.py")}
    modules = {location.partition(":")[0].rpartition(".")[2] for location in catalogue().values()}
    assert {module for module in modules if f"test_{module}.py" not in present} == set()


def test_every_catalogue_line_names_a_class_of_that_type():
    wrong = {k: plugin_class(v).info.type for k, v in catalogue().items() if plugin_class(v).info.type != k}
    assert wrong == {}


def test_the_guide_describes_only_states_that_plugins_show():
    guide = (ROOT / "docs/guides/observability.md").read_text()
    table = guide.partition("| plugin | state |\n")[2].partition("\n\n")[0]
    listed = re.findall(r"`([a-z0-9-]+)`", "".join(re.findall(r"^\| (`.+?`) \|", table, re.MULTILINE)))
    classes = {kind: plugin_class(location) for kind, location in catalogue().items()}
    assert [kind for kind in listed if not hasattr(classes.get(kind), "dump_state")] == []
    assert len(listed) > 5


def test_every_plugin_refuses_unknown_parameters():
    params = {kind: plugin_class(location).info.params for kind, location in catalogue().items()}
    lax = {
        kind
        for kind, struct in params.items()
        if not (issubclass(struct, PluginParams) and struct.__struct_config__.forbid_unknown_fields)
    }
    assert lax == set()
