"""Configurations of payload processors: what they come to, and every mistake with its path."""

from __future__ import annotations

from typing import Any

import pytest

from dataplane.config.problems import ConfigErrors
from tests.support.processors import Rig, headers_of, one_profile, pipeline_of
from tests.support.profiles import FIELD, USER, two_profiles


def problems_of(config: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigErrors) as caught:
        pipeline_of(config)
    return [str(error) for error in caught.value.errors]


def test_all_mistakes_are_told_at_once_with_their_paths() -> None:
    config = {
        "plugins": [FIELD, {**FIELD}, {"type": "base-model-to-heder", "name": "x"}],
        "profiles": [{"name": "p", "plugins": {"request": [{"pluginRef": "modl"}]}}],
        "profilez": [],
    }
    assert problems_of(config) == [
        'profilez: unknown field (did you mean "profiles"?)',
        "plugins[1].name: 'model' is the name of another plugin; give this one its own",
        "profiles[0].plugins.request[0].pluginRef: there is no plugin 'modl' (did you mean \"model\"?)",
        (
            "plugins[2]: plugin type 'base-model-to-heder' is not registered "
            '(did you mean "base-model-to-header"?)'
        ),
    ]


def test_a_type_nobody_registered_is_refused_with_a_suggestion() -> None:
    assert problems_of(one_profile([{"type": "base-model-to-heder"}])) == [
        (
            "plugins[0]: plugin type 'base-model-to-heder' is not registered "
            '(did you mean "base-model-to-header"?)'
        )
    ]


def test_parameters_are_strict() -> None:
    wrong = {"type": "body-field-to-header", "parameters": {"fieldName": "", "header": "x"}}
    assert problems_of(one_profile([wrong])) == [
        "plugins[0].parameters.fieldName: expected str of length >= 1",
        'plugins[0].parameters.header: unknown field (did you mean "headerName"?)',
        "plugins[0].parameters.headerName: is required",
    ]


def test_a_plugin_in_a_place_it_cannot_fill_is_refused() -> None:
    config = one_profile([FIELD, {"type": "model-name-to-header"}])
    assert problems_of(config) == [
        (
            "profiles[0].plugins.request[1].pluginRef: plugin 'model-name-to-header' "
            "(type: model-name-to-header) processes no requests"
        )
    ]
    config = one_profile([FIELD], response=["model"])
    assert problems_of(config) == [
        (
            "profiles[0].plugins.response[0].pluginRef: plugin 'model' (type: body-field-to-header) "
            "processes no responses"
        )
    ]


def test_a_picker_that_names_a_profile_that_is_not_there_is_refused() -> None:
    config = two_profiles(
        {
            "type": "tenant-profile-picker",
            "name": "pick",
            "parameters": {"profiles": {"acme": "strict"}, "default": "open"},
        }
    )
    config["profiles"] = config["profiles"][:1]
    assert problems_of(config) == [
        "plugins[2].parameters.default: there is no profile 'open'; there are strict"
    ]


def test_what_is_not_the_kind_is_refused() -> None:
    config = {"apiVersion": "v1", "kind": "EndpointPickerConfig", **one_profile([FIELD])}
    assert problems_of(config) == [
        "apiVersion: must be llm-d.ai/v1alpha1, is 'v1'",
        "kind: must be PayloadProcessorConfig, is 'EndpointPickerConfig'",
    ]


def test_pre_processing_runs_before_every_profile() -> None:
    parameters = {"headerName": "x-user", "profiles": {"root": "strict"}, "default": "open"}
    config = two_profiles({"type": "header-profile-picker", "name": "pick", "parameters": parameters})
    config["preProcessing"] = {"plugins": [{"pluginRef": "user"}]}
    rig = Rig(config)
    assert headers_of(rig.ask({"model": "m", "user": "root"})) == {"x-model": "m", "x-user": "root"}
    assert rig.counted("pointsman_ipp_requests_total", profile="strict") == 1


def test_a_plugin_that_nothing_refers_to_is_warned_of() -> None:
    config = {**one_profile([FIELD]), "plugins": [FIELD, USER]}
    assert list(pipeline_of(config).warnings) == ["plugin 'user' is used nowhere"]


def test_nothing_is_buffered_that_nobody_needs() -> None:
    assert Rig(one_profile([FIELD])).handler.open().needs_request_body is True
    assert Rig(one_profile([FIELD])).handler.open().observes_response_body is False
