"""The registry resolves types lazily, knows aliases, and refuses what it does not know."""

import sys

import pytest

from dataplane.errors import ConfigError
from dataplane.plugin.base import PluginInfo, Stability
from dataplane.plugin.registry import PluginRegistry, check_stability


class Good:
    info = PluginInfo("good")


class Other:
    info = PluginInfo("other")


class Bare:
    pass


HERE = __name__


@pytest.fixture
def registry() -> PluginRegistry:
    sys.modules.setdefault(HERE, sys.modules[__name__])
    return PluginRegistry(
        {
            "good": f"{HERE}:Good",
            "mislabelled": f"{HERE}:Other",
            "bare": f"{HERE}:Bare",
            "no-module": "dataplane.nothing:X",
            "no-class": f"{HERE}:Nothing",
        },
        {"good-old": "good"},
    )


def test_resolves_a_type_and_its_alias(registry: PluginRegistry):
    assert registry.resolve("good") is Good
    assert registry.resolve("good-old") is Good
    assert registry.canonical("good-old") == "good"
    assert "good-old" in registry
    assert "bad" not in registry
    assert list(registry)[:2] == ["good", "mislabelled"]


def test_looking_imports_nothing():
    registry = PluginRegistry({"x": "dataplane.no_such_module:X"})
    assert "x" in registry


def test_an_unknown_type_comes_with_a_suggestion(registry: PluginRegistry):
    with pytest.raises(ConfigError) as caught:
        registry.resolve("goood")
    assert str(caught.value) == "plugin type 'goood' is not registered (did you mean \"good\"?)"


@pytest.mark.parametrize(
    ("plugin_type", "message"),
    [
        ("mislabelled", "is a plugin of type 'other', registered as 'mislabelled'"),
        ("bare", "is not a plugin class with an `info`"),
        ("no-module", "cannot be loaded from dataplane.nothing:X: No module named 'dataplane.nothing'"),
        ("no-class", "cannot be loaded from"),
    ],
)
def test_a_wrong_entry_is_refused_when_it_is_used(registry: PluginRegistry, plugin_type: str, message: str):
    with pytest.raises(ConfigError, match=message):
        registry.resolve(plugin_type)


def test_entries_cannot_be_changed(registry: PluginRegistry):
    with pytest.raises(TypeError):
        registry.entries["new"] = "x:Y"  # type: ignore[index]


def test_extending_makes_another_registry(registry: PluginRegistry):
    larger = registry.extended({"other": f"{HERE}:Other"})
    assert larger.resolve("other") is Other
    assert larger.canonical("good-old") == "good"
    assert "other" not in registry


def test_alpha_plugins_need_the_flag():
    info = PluginInfo("new-thing", stability=Stability.ALPHA)
    with pytest.raises(ConfigError) as caught:
        check_stability(info, "mine", allow_experimental=False)
    assert str(caught.value) == (
        "plugin 'mine' (type: 'new-thing') has Alpha stability level, "
        "but command line flag --allow-experimental-plugins is not set"
    )
    check_stability(info, "mine", allow_experimental=True)
    check_stability(PluginInfo("old-thing"), "mine", allow_experimental=False)
