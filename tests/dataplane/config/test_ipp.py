"""PayloadProcessorConfig: every mistake is told at once with its path, and one mistake is told once."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from dataplane.config.ipp import (
    MAX_PLUGINS,
    PayloadProcessorConfig,
    ProcessingProfile,
    ProcessorEntry,
    ProfilePlugins,
    read_ipp_config,
)
from dataplane.errors import ConfigError

GOOD: dict[str, Any] = {
    "plugins": [
        {"name": "model-header", "type": "body-field-to-header", "parameters": {"fieldName": "model"}},
        {"type": "cost-scorer"},
        {"type": "tiered"},
        {"type": "ttft-percentile-extractor"},
    ],
    "preProcessing": {"plugins": [{"pluginRef": "model-header"}]},
    "profilePicker": {"pluginRef": "tiered"},
    "profiles": [
        {"name": "cheap", "plugins": {"request": [{"pluginRef": "cost-scorer", "weight": 2}]}},
        {"name": "plain", "plugins": {"response": [{"pluginRef": "model-header"}]}},
    ],
    "postProcessing": {"plugins": []},
    "datalayer": {"extractors": [{"pluginRef": "ttft-percentile-extractor"}]},
}


def read(**sections: Any) -> tuple[PayloadProcessorConfig | None, list[str]]:
    document = copy.deepcopy(GOOD) | sections
    problems: list[ConfigError] = []
    found = read_ipp_config({key: value for key, value in document.items() if value is not ...}, problems)
    return found, [f"{problem.path}: {problem.message}" for problem in problems]


def profile(**lists: Any) -> list[dict[str, Any]]:
    return [{"name": "only", "plugins": lists}]


def test_every_section_is_read() -> None:
    config, problems = read()
    assert problems == []
    assert config is not None
    assert [spec.type for spec in config.plugins] == [
        "body-field-to-header",
        "cost-scorer",
        "tiered",
        "ttft-percentile-extractor",
    ]
    assert config.profiles[0] == ProcessingProfile(
        name="cheap", plugins=ProfilePlugins(request=[ProcessorEntry(plugin_ref="cost-scorer", weight=2.0)])
    )
    assert config.profile_picker is not None
    assert config.datalayer.extractors[0].plugin_ref == "ttft-percentile-extractor"


def test_one_profile_needs_no_picker() -> None:
    assert read(profilePicker=..., profiles=profile(request=[{"pluginRef": "tiered"}]))[1] == []


@pytest.mark.parametrize(
    ("sections", "wrong"),
    [
        ({"plugins": [{"type": "t"}, {"type": "t"}]}, "plugins[1].name: 't' is the name of another plugin"),
        ({"plugins": [{"name": "x"}]}, "plugins[0].type: is missing"),
        ({"plugins": []}, "plugins: must list at least one plugin"),
        ({"plugins": ...}, "plugins: must list at least one plugin"),
        ({"plugins": [{"type": "t", "params": {}}]}, "plugins[0].params: unknown field"),
        ({"profiles": []}, "profiles: must list at least one profile"),
        ({"profilePicker": ...}, "profilePicker: is missing: nothing says which of 2 profiles a request has"),
        ({"profilePicker": {}}, "profilePicker.pluginRef: is missing"),
        ({"profilePicker": {"pluginRef": "tired"}}, "there is no plugin 'tired' (did you mean \"tiered\"?)"),
        ({"profiles": [{"plugins": {"request": [{"pluginRef": "tiered"}]}}]}, "profiles[0].name: is missing"),
        ({"profiles": profile()}, "profiles[0].plugins: must list at least one plugin"),
        (
            {"profiles": profile(request=[{"pluginRef": "tiered", "weight": -1}])},
            "profiles[0].plugins.request[0].weight: must be a finite number of at least 0, is -1.0",
        ),
        (
            {"profiles": profile(response=[{"pluginRef": "tiered"}, {}])},
            "profiles[0].plugins.response[1].pluginRef: is missing",
        ),
        (
            {"preProcessing": {"plugins": [{"pluginRef": "zzz"}]}},
            "preProcessing.plugins[0].pluginRef: there is no plugin 'zzz'; there are cost-scorer, ",
        ),
        ({"postProcessing": {"plugin": []}}, "postProcessing.plugin: unknown field"),
        (
            {"datalayer": {"datasources": [{"pluginRef": "model-haeder"}]}},
            "datasources[0].pluginRef: there is no plugin 'model-haeder' (did you mean \"model-header\"?)",
        ),
        (
            {"dataLayer": {}},
            'dataLayer: unknown field (did you mean "datalayer"?)',
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_path(sections: dict[str, Any], wrong: str) -> None:
    config, problems = read(**sections)
    assert config is None
    assert any(wrong in problem for problem in problems), problems


def test_all_mistakes_are_told_at_once() -> None:
    known = "plugins, preProcessing, profilePicker, profiles, postProcessing, datalayer"
    profiles = [*GOOD["profiles"], {"name": "plain", "plugins": {"request": [{"pluginRef": "cost-score"}]}}]
    at = "profiles[2].plugins.request[0].pluginRef"
    assert read(profilePicker={"pluginRef": ""}, profiles=profiles, kindness=1)[1] == [
        f"kindness: unknown field; known here: {known}",
        "profiles[2].name: 'plain' is the name of another profile",
        f"{at}: there is no plugin 'cost-score' (did you mean \"cost-scorer\"?)",
        "profilePicker.pluginRef: is missing",
    ]


@pytest.mark.parametrize(
    ("sections", "only"),
    [
        ({"plugins": "none"}, "plugins: expected a list, got text"),
        (
            {"plugins": [*GOOD["plugins"], {"type": 3}]},
            "plugins[4].type: expected str, got int",
        ),
        ({"plugins": [*GOOD["plugins"], "x"]}, "plugins[4]: expected a mapping, got text"),
        (
            {"profiles": [{"name": "only", "plugins": [{"pluginRef": "tiered"}]}]},
            "profiles[0].plugins: expected a mapping, got a list",
        ),
        ({"profilePicker": "tiered"}, "profilePicker: expected a mapping, got text"),
    ],
)
def test_one_mistake_is_told_once(sections: dict[str, Any], only: str) -> None:
    assert read(**sections)[1] == [only]


def test_lists_have_a_cap() -> None:
    plugins = [{"type": f"t{index}"} for index in range(MAX_PLUGINS + 1)]
    assert read(plugins=plugins)[1] == ["plugins: has 1001 entries; at most 1000 are allowed"]
