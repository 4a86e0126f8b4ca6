"""`pointsman ipp validate`: every mistake at once, and what a file comes to."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import yaml

from cli.main import main
from ipp.validate import validate

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: PayloadProcessorConfig\n"
GOOD = HEAD + (
    "plugins:\n- type: model-name-to-header\n- type: guardrails\n"
    "profiles:\n- name: p\n  plugins:\n    request: [{pluginRef: guardrails}]\n"
    "    response: [{pluginRef: model-name-to-header}]\n"
)
BAD = HEAD + (
    "plugins:\n- type: body-field-to-heder\n- {type: model-config-datasource}\n"
    "profiles:\n- {name: p, plugins: {request: [{pluginRef: model-config-datasource}]}}\n"
)
POLICY = (
    "apiVersion: pointsman.dev/v1\nkind: GuardrailPolicy\nmetadata: {name: a}\n"
    "spec: {rules: [{name: r, type: TYPE, parameters: {words: [zebra]}}]}\n"
)


STRUCTURE = (
    HEAD
    + """
plugins:
- {type: body-field-to-header, parameters: {fieldName: model, headerNam: X}}
- {type: body-field-to-heder}
- {type: model-selector}
- {type: model-selector}
- {type: cost-scorer}
- {name: untyped}
- {type: ttft-aware-scorer, parameters: {explorationRate: 2, anchorGapScale: wide}}
profilePicker: {pluginRef: header-picker}
preProcesing: {}
profiles:
- name: p
  plugins:
    request: [{pluginRef: model-selector}, {pluginRef: cost-scorer}, {pluginRef: cost-scorer, weight: -1}]
    response: [{pluginRef: cost-scorer, weigth: 1}]
- {name: p, plugins: {}}
- plugins: {request: [{}]}
datalayer:
  extractors: [{pluginRef: cost-scorer}]
"""
)
STRUCTURE_SAID = """
preProcesing: unknown field (did you mean "preProcessing"?)
profiles[0].plugins.response[0].weigth: unknown field (did you mean "weight"?)
plugins[3].name: 'model-selector' is the name of another plugin; give this one its own
plugins[5].type: is missing
profiles[0].plugins.request[2].weight: must be a finite number of at least 0, is -1.0
profiles[1].name: 'p' is the name of another profile
profiles[1].plugins: must list at least one plugin, in request or in response
profiles[2].name: is missing
profiles[2].plugins.request[0].pluginRef: is missing
profilePicker.pluginRef: there is no plugin 'header-picker'; there are body-field-to-header, \
body-field-to-heder, cost-scorer, model-selector, ttft-aware-scorer, untyped
plugins[0].parameters.headerNam: unknown field (did you mean "headerName"?)
plugins[0].parameters.headerName: is required
plugins[1]: plugin type 'body-field-to-heder' is not registered (did you mean "body-field-to-header"?)
plugins[6].parameters.explorationRate: expected float <= 1.0
plugins[6].parameters.anchorGapScale: expected float, got str
profiles[0].plugins.request[1].weight: plugin 'cost-scorer' (type: cost-scorer) is a scorer without weight
profiles[0].plugins.response[0].pluginRef: plugin 'cost-scorer' (type: cost-scorer) processes no responses
datalayer.extractors[0].pluginRef: plugin 'cost-scorer' (type: cost-scorer) extracts nothing from requests
"""
WIRING = (
    HEAD
    + """
plugins:
- {type: model-selector}
- {type: model-selector, name: second}
- {type: cost-scorer}
- {type: session-affinity, parameters: {maxSessions: 5}}
- {type: header-profile-picker, parameters: {headerName: x, profiles: {a: quik}, default: p}}
- type: base-model-to-header
  parameters: {mappings: [{baseModel: a, aliases: [x]}, {baseModel: b, aliases: [x]}]}
- {type: pool-load-scorer, parameters: {fullQueueDepth: 0}}
- {type: load-aware-ttft-scorer}
- {type: max-score-picker}
- {type: random-picker}
- {type: router-metrics-collector, parameters: {interval: 5, timeout: 0s}}
- {type: request-metadata-extractor}
profilePicker: {pluginRef: cost-scorer}
profiles:
- name: p
  plugins:
    request:
    - {pluginRef: model-selector}
    - {pluginRef: second}
    - {pluginRef: session-affinity, weight: 1}
    - {pluginRef: load-aware-ttft-scorer, weight: 1}
    - {pluginRef: max-score-picker}
    - {pluginRef: random-picker}
- {name: quick, plugins: {request: [{pluginRef: cost-scorer, weight: 1}]}}
datalayer:
  extractors: [{pluginRef: request-metadata-extractor}, {pluginRef: request-metadata-extractor}]
  datasources: [{pluginRef: request-metadata-extractor}]
"""
)
WIRING_SAID = """
plugins[5].parameters.mappings[1].aliases[0]: 'x' is also in mappings[0].aliases[0]; a name has one base model
plugins[6].parameters.fullQueueDepth: expected float > 0.0
plugins[10].parameters.interval: '5' is not a duration; write a number and a unit, such as 50ms, 2s or 1m30s
plugins[10].parameters.timeout: must be from 10ms to 24h
profiles[0].plugins.request[1].pluginRef: plugin 'second' (type: model-selector) is a second selector; \
a profile has one
profiles[0].plugins.request[5].pluginRef: plugin 'random-picker' (type: random-picker) is a second picker; \
a selector has one
profiles[1].plugins.request[0].pluginRef: plugin 'cost-scorer' (type: cost-scorer) helps a model-selector, \
and this list has none
profilePicker.pluginRef: plugin 'cost-scorer' (type: cost-scorer) picks no profiles
profiles[0].plugins.request[2].pluginRef: plugin 'session-affinity' learns from answers; list it under \
response as well
datalayer.extractors[1].pluginRef: plugin 'request-metadata-extractor' is listed twice
datalayer.datasources[0].pluginRef: plugin 'request-metadata-extractor' (type: request-metadata-extractor) \
is no source of data
plugins[0]: 'model-selector' needs a list of models, which nothing in datalayer provides; \
list a model-config-datasource there
plugins[1]: 'second' needs a list of models, which nothing in datalayer provides; \
list a model-config-datasource there
plugins[7]: 'load-aware-ttft-scorer' needs times to the first byte of each model, which nothing in datalayer \
provides; list a ttft-percentile-extractor there
"""
TYPES = (
    HEAD
    + """
plugins:
- {type: 5}
- model-selector
- {type: cost-scorer, parameters: [1]}
profiles: {name: p}
datalayer: {collectors: {}}
"""
)
TYPES_SAID = """
plugins[0].type: expected str, got int
plugins[1]: expected a mapping, got text
plugins[2].parameters: expected object, got array
profiles: expected a list, got a mapping
datalayer.collectors: expected a list, got a mapping
"""


def checked(*files: Path, show_defaults: bool = False) -> tuple[int, list[str]]:
    out = io.StringIO()
    code = validate([str(file) for file in files], out, show_defaults=show_defaults)
    return code, out.getvalue().splitlines()


def test_each_file_is_judged_and_all_mistakes_are_told(tmp_path: Path) -> None:
    good, bad, absent = tmp_path / "good.yaml", tmp_path / "bad.yaml", tmp_path / "absent.yaml"
    good.write_text(GOOD)
    bad.write_text(BAD)
    code, said = checked(good, bad, absent)
    assert code == 1
    assert said[0] == f"{good}: ok"
    assert said[1].startswith(
        f"{bad}: error: plugins[0]: plugin type 'body-field-to-heder' is not registered (did you mean "
    )
    assert said[2] == f"{bad}: error: plugins[1].parameters.modelsPath: is required"
    assert said[-1] == f"{absent}: error: cannot be read (No such file or directory)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [(STRUCTURE, STRUCTURE_SAID), (WIRING, WIRING_SAID), (TYPES, TYPES_SAID)],
    ids=["structure", "wiring", "types"],
)
def test_every_kind_of_mistake_is_told_at_once_with_its_place(
    tmp_path: Path, text: str, expected: str
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    code, said = checked(file)
    assert code == 1
    assert [line.removeprefix(f"{file}: error: ") for line in said] == expected.strip().splitlines()


def test_what_a_configuration_comes_to_is_shown(tmp_path: Path) -> None:
    good = tmp_path / "good.yaml"
    good.write_text(GOOD)
    code, said = checked(good, show_defaults=True)
    shown = yaml.safe_load("\n".join(said[1:]))
    assert code == 0
    assert shown["plugins"][0]["parameters"] == {"headerName": "X-Gateway-Model-Name"}
    assert shown["plugins"][2] == {
        "name": "single-profile-picker",
        "type": "single-profile-picker",
        "createdByDefault": True,
    }
    assert shown["profiles"] == [
        {"name": "p", "request": ["guardrails"], "response": ["model-name-to-header"]}
    ]
    assert shown["buffersRequests"] is True


def test_policies_and_lists_of_models_are_judged(tmp_path: Path) -> None:
    policies, models, wrong = tmp_path / "p.yaml", tmp_path / "m.json", tmp_path / "w.json"
    policies.write_text(POLICY.replace("TYPE", "keywords"))
    models.write_text(json.dumps({"models": [{"name": "a"}, {"name": "b"}]}))
    wrong.write_text(json.dumps({"models": [{"name": "a"}, {"name": "a"}]}))
    code, said = checked(policies, models, wrong)
    assert (code, said) == (
        1,
        [
            f"{policies}: ok (1 GuardrailPolicy)",
            f"{models}: ok (2 models)",
            f"{wrong}: error: models[1].name: 'a' is listed twice",
        ],
    )
    policies.write_text(POLICY.replace("TYPE", "keyword"))
    assert checked(policies)[0] == 1


def test_the_command_says_it_and_exits_by_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(GOOD)
    assert main(["ipp", "validate", str(file)]) == 0
    assert capsys.readouterr().out == f"{file}: ok\n"
    file.write_text(BAD)
    assert main(["ipp", "validate", "--external-plugins=false", str(file)]) == 1
    assert main(["ipp", "schema", "--external-plugins=false"]) == 0
    assert "model-selector" in capsys.readouterr().out
