"""``model-selector``: filters, scores and picks among listed models, and writes what it chose."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dataplane.config.problems import ConfigErrors
from dataplane.errors import BadRequestError, ResourceExhaustedError
from tests.support.processors import one_profile, pipeline_of
from tests.support.served_models import model_of, running, selecting, write_models


async def test_auto_is_the_best_score_and_no_other_byte_changes(tmp_path: Path) -> None:
    config = selecting(
        write_models(tmp_path / "m.json"),
        "model-group-name-filter",
        "cost-scorer",
        weights={"cost-scorer": 1},
    )
    async with running(config) as rig:
        answer = rig.ask(b'{"n": 1e2,  "model" : "auto", "z": [1,  2]}')
        assert answer.body == b'{"n": 1e2,  "model" : "small", "z": [1,  2]}'
        assert model_of(rig.ask({"model": "auto/wise"})) == "large"
        assert model_of(rig.ask({"model": "auto/fast"})) == "small"
        assert model_of(rig.ask({"prompt": "x"})) == "small"


async def test_the_model_that_was_asked_for_leaves_the_body_alone(tmp_path: Path) -> None:
    async with running(selecting(write_models(tmp_path / "m.json"), "model-group-name-filter")) as rig:
        assert rig.ask({"model": "large"}).body is None


async def test_without_candidates_the_request_ends_with_429_and_says_why(tmp_path: Path) -> None:
    async with running(selecting(write_models(tmp_path / "m.json"), "model-group-name-filter")) as rig:
        for model in ("auto/none", "nobody", "auto/"):
            with pytest.raises(ResourceExhaustedError) as caught:
                rig.ask({"model": model})
            assert caught.value.status == 429
            assert json.loads(caught.value.body())["error"] == {
                "message": f"no listed model fits '{model}': model-group-name-filter leaves none",
                "type": "rate_limit_error",
                "param": "model",
                "code": "no_model_candidates",
            }
        assert rig.counted("pointsman_ipp_requests_rejected_total", code="ResourceExhausted") == 3


async def test_an_empty_list_has_a_reason_of_its_own(tmp_path: Path) -> None:
    async with running(selecting(write_models(tmp_path / "m.json", [], []))) as rig:
        with pytest.raises(ResourceExhaustedError, match="no model is listed that could serve the request"):
            rig.ask({"model": "auto"})


async def test_a_body_that_is_no_object_is_a_bad_request(tmp_path: Path) -> None:
    async with running(selecting(write_models(tmp_path / "m.json"))) as rig:
        with pytest.raises(BadRequestError):
            rig.ask(b"[1]")


async def test_weights_decide_between_scorers(tmp_path: Path) -> None:
    path = write_models(tmp_path / "m.json")
    helpers = ("cost-scorer", "inflight-requests-scorer")
    for weights, second in (((1.0, 0.1), "small"), ((0.1, 1.0), "medium")):
        config = selecting(
            path,
            *helpers,
            weights=dict(zip(helpers, weights, strict=True)),
            extractors=["request-metadata-extractor"],
        )
        async with running(config) as rig:
            assert model_of(rig.ask({"model": "auto"})) == "small"
            assert model_of(rig.ask({"model": "auto"})) == second


async def test_later_plugins_see_the_chosen_model(tmp_path: Path) -> None:
    config = selecting(write_models(tmp_path / "m.json"), "model-group-name-filter")
    config["plugins"].append(
        {"type": "body-field-to-header", "parameters": {"fieldName": "model", "headerName": "x-model"}}
    )
    config["profiles"][0]["plugins"]["request"].append({"pluginRef": "body-field-to-header"})
    async with running(config) as rig:
        answer = rig.ask({"model": "auto/wise"})
        assert dict(answer.set_headers) == {"x-model": b"large"}


def problems_of(config: dict[str, object]) -> list[str]:
    with pytest.raises(ConfigErrors) as caught:
        pipeline_of(config)
    return [str(error) for error in caught.value.errors]


def test_a_scorer_needs_a_weight(tmp_path: Path) -> None:
    assert problems_of(selecting(tmp_path / "m.json", "cost-scorer")) == [
        (
            "profiles[0].plugins.request[1].weight: plugin 'cost-scorer' (type: cost-scorer) "
            "is a scorer without weight"
        )
    ]


def test_a_helper_needs_a_selector_in_its_list() -> None:
    assert problems_of(one_profile([{"type": "max-score-picker"}])) == [
        (
            "profiles[0].plugins.request[0].pluginRef: plugin 'max-score-picker' (type: max-score-picker) "
            "helps a model-selector, and this list has none"
        )
    ]


def test_a_profile_has_one_selector_and_one_picker(tmp_path: Path) -> None:
    config = selecting(
        tmp_path / "m.json",
        {"type": "model-selector", "name": "another"},
        "max-score-picker",
        "random-picker",
    )
    at = "profiles[0].plugins.request"
    assert problems_of(config) == [
        f"{at}[1].pluginRef: plugin 'another' (type: model-selector) is a second selector; a profile has one",
        (
            f"{at}[3].pluginRef: plugin 'random-picker' (type: random-picker) is a second picker; "
            "a selector has one"
        ),
    ]


def test_a_selector_needs_a_list_of_models() -> None:
    assert problems_of(one_profile([{"type": "model-selector"}])) == [
        (
            "plugins[0]: 'model-selector' needs a list of models, which nothing in datalayer provides; "
            "list a model-config-datasource there"
        )
    ]


def test_the_data_layer_takes_plugins_of_its_roles_once_each(tmp_path: Path) -> None:
    config = selecting(tmp_path / "m.json")
    config["datalayer"]["extractors"] = [{"pluginRef": "model-config-datasource"}]
    config["datalayer"]["datasources"] *= 2
    config["datalayer"]["collectors"] = [{"pluginRef": "missing"}]
    assert problems_of(config) == [
        (
            "datalayer.collectors[0].pluginRef: there is no plugin 'missing'; there are "
            "model-config-datasource, model-selector"
        ),
        (
            "datalayer.extractors[0].pluginRef: plugin 'model-config-datasource' "
            "(type: model-config-datasource) extracts nothing from requests"
        ),
        "datalayer.datasources[1].pluginRef: plugin 'model-config-datasource' is listed twice",
    ]


def test_nothing_is_said_to_be_unused(tmp_path: Path) -> None:
    assert list(pipeline_of(selecting(tmp_path / "m.json")).warnings) == []
