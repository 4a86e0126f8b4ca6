"""Plugins of installed packages join the registry, or the package is refused by its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from dataplane.errors import ConfigError
from dataplane.plugin.entry_points import Installed, with_installed
from dataplane.plugin.registry import PluginRegistry
from tests.support.plugin_packages import install

GROUP = "pointsman.epp.plugins"
BASE = PluginRegistry({"here": "tests.support.plugins:AllFilter"}, {"old": "here"}, {"missing": "not here"})
SOURCE = """
from dataplane.plugin.base import PluginInfo
class Params: pass
class Good: info = PluginInfo("{good}")
class Lax: info = PluginInfo("lax", Params)
class Bare: pass
"""
WAY_OUT = "; mend or uninstall the package, or use --without"


def load() -> Installed:
    """The base registry with what is installed."""
    return with_installed(BASE, GROUP, "--without")


def refusal() -> str:
    """Why what is installed is refused."""
    with pytest.raises(ConfigError) as caught:
        load()
    return str(caught.value)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that packages are found in."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_without_packages_the_registry_stays_as_it_is():
    registry, packages = load()
    assert (dict(registry.entries), dict(packages)) == (dict(BASE.entries), {})


def test_a_packages_plugins_are_added_with_their_origin(folder: Path):
    modules = {"entry_points_good": SOURCE.format(good="theirs")}
    install(folder, "pack-age", "1.2", {"theirs": "entry_points_good:Good"}, modules)
    registry, packages = load()
    assert list(registry) == ["here", "theirs"]
    assert registry.resolve("theirs").__name__ == "Good"
    assert packages == {"theirs": "pack-age 1.2"}
    assert list(BASE) == ["here"]


def test_a_package_may_supply_a_type_that_is_missing_here(folder: Path):
    modules = {"entry_points_missing": SOURCE.format(good="missing")}
    install(folder, "supplier", "1", {"missing": "entry_points_missing:Good"}, modules)
    assert load().registry.resolve("missing").__name__ == "Good"


@pytest.mark.parametrize("taken", ["here", "old"])
def test_a_type_that_is_built_in_is_refused(folder: Path, taken: str):
    install(folder, "greedy", "2", {taken: "never.imported:X"})
    assert refusal() == f"installed package greedy 2: plugin type '{taken}' is built in{WAY_OUT}"


def test_a_type_of_two_packages_is_refused(folder: Path):
    modules = {"entry_points_twice": SOURCE.format(good="twice")}
    install(folder, "one", "1", {"twice": "entry_points_twice:Good"}, modules)
    install(folder, "two", "2", {"twice": "entry_points_twice:Good"})
    assert refusal() == f"installed package two 2: plugin type 'twice' is also in package one 1{WAY_OUT}"


@pytest.mark.parametrize(
    ("source", "location", "reason"),
    [
        (
            "import no_such_module_here",
            "{m}:Good",
            "plugin type 'theirs' cannot be loaded from {m}:Good: No module named 'no_such_module_here'",
        ),
        (
            "1 / 0",
            "{m}:Good",
            "plugin type 'theirs' cannot be loaded from {m}:Good: ZeroDivisionError: division by zero",
        ),
        (SOURCE, "{m}:Bare", "{m}:Bare, registered as 'theirs', is not a plugin class with an `info`"),
        (SOURCE, "{m}:Good", "{m}:Good is a plugin of type '{{good}}', registered as 'theirs'"),
        (SOURCE, "{m}:Lax", "{m}:Lax is a plugin of type 'lax', registered as 'theirs'"),
    ],
    ids=["import error", "failing module", "no plugin", "other type", "other type and params"],
)
def test_a_broken_package_is_refused(folder: Path, request, source: str, location: str, reason: str):
    module = f"entry_points_broken_{request.node.callspec.id.replace(' ', '_')}"
    install(folder, "broken", "0.1", {"theirs": location.format(m=module)}, {module: source})
    assert refusal() == f"installed package broken 0.1: {reason.format(m=module, good='{good}')}{WAY_OUT}"


def test_parameters_that_are_not_strict_are_refused(folder: Path):
    modules = {"entry_points_lax": SOURCE}
    install(folder, "lax", "1", {"lax": "entry_points_lax:Lax"}, modules)
    assert refusal() == (
        f"installed package lax 1: parameters of plugin type 'lax' are no subclass of PluginParams{WAY_OUT}"
    )


def test_all_broken_packages_are_told(folder: Path):
    install(folder, "a", "1", {"here": "x:X"})
    install(folder, "b", "1", {"nowhere": "no_module_of_this_name:X"})
    assert refusal() == (
        "2 problems:\n"
        f"  - installed package a 1: plugin type 'here' is built in{WAY_OUT}\n"
        "  - installed package b 1: plugin type 'nowhere' cannot be loaded from no_module_of_this_name:X: "
        f"No module named 'no_module_of_this_name'{WAY_OUT}"
    )
