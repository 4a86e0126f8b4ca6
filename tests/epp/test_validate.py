"""`pointsman epp validate`: every mistake at once, and what a file comes to."""

from __future__ import annotations

import io
from pathlib import Path

import yaml

from cli.main import main
from epp.validate import validate

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"
GOOD = HEAD + "plugins:\n- type: queue-scorer\n- {type: prefix-cache-scorer, name: prefix}\n"
BAD = HEAD + "plugins:\n- type: queue-scorrer\n- {type: queue-scorer, parameters: {minSpred: 1}}\n"


def checked(*files: Path, show_defaults: bool = False) -> tuple[int, str]:
    out = io.StringIO()
    code = validate([str(file) for file in files], out, show_defaults=show_defaults)
    return code, out.getvalue()


def test_each_file_is_judged_and_all_mistakes_are_told(tmp_path: Path) -> None:
    good, bad, absent = tmp_path / "good.yaml", tmp_path / "bad.yaml", tmp_path / "absent.yaml"
    good.write_text(GOOD)
    bad.write_text(BAD)
    code, said = checked(good, bad, absent)
    assert code == 1
    lines = said.splitlines()
    assert lines[0] == f"{good}: ok"
    assert lines[1].startswith(f"{bad}: error: plugins[0]: ")
    assert 'did you mean "queue-scorer"?' in lines[1]
    assert lines[2].startswith(f"{bad}: error: plugins[1].parameters.minSpred: ")
    assert lines[3] == f"{absent}: error: cannot be read (No such file or directory)"
    assert len(lines) == 4


def test_defaults_are_shown_in_the_order_in_which_they_run(tmp_path: Path) -> None:
    file = tmp_path / "good.yaml"
    file.write_text(GOOD)
    code, said = checked(file, show_defaults=True)
    assert code == 0
    first, _, rest = said.partition("\n")
    assert first == f"{file}: ok"
    shown = yaml.safe_load(rest)
    created = [plugin["type"] for plugin in shown["plugins"] if plugin.get("createdByDefault")]
    assert {"approx-prefix-cache-producer", "token-producer", "max-score-picker"} <= set(created)
    assert shown["dataProducers"] == ["token-producer", "approx-prefix-cache-producer"]
    (profile,) = shown["schedulingProfiles"]
    assert profile["scorers"] == [
        {"name": "queue-scorer", "weight": 1.0},
        {"name": "prefix", "weight": 1.0},
    ]
    assert profile["picker"] == "max-score-picker"
    assert shown["resilience"]["ejection"]["baseTime"] == "5s"
    assert shown["resilience"]["slowStart"] == {"enabled": True, "window": "30s", "initialShare": 0.1}
    assert shown["dataSources"] == [{"name": "metrics-data-source", "extractors": ["core-metrics-extractor"]}]


def test_parameters_are_shown_with_their_defaults(tmp_path: Path) -> None:
    file = tmp_path / "good.yaml"
    file.write_text(HEAD + "plugins:\n- {type: prefix-cache-scorer, parameters: {matchLengthWeight: 0.25}}\n")
    _, said = checked(file, show_defaults=True)
    plugins = {plugin["name"]: plugin for plugin in yaml.safe_load(said.partition("\n")[2])["plugins"]}
    assert plugins["prefix-cache-scorer"]["parameters"] == {
        "matchLengthWeight": 0.25,
        "matchLengthScaleTokens": 8192,
    }
    assert plugins["max-score-picker"]["parameters"] == {"maxNumOfEndpoints": 1}
    assert "parameters" not in plugins["openai-parser"]


def test_the_command_answers_with_its_exit_code(tmp_path: Path, capsys) -> None:
    file = tmp_path / "good.yaml"
    file.write_text(GOOD)
    assert main(["epp", "validate", str(file)]) == 0
    assert capsys.readouterr().out == f"{file}: ok\n"
    file.write_text(BAD)
    assert main(["epp", "validate", str(file)]) == 1


OBJECTS = """
apiVersion: llm-d.ai/v1alpha2
kind: InferenceObjective
metadata: {name: gold}
spec: {poolRef: {name: a}, priority: 10}
---
apiVersion: llm-d.ai/v1alpha2
kind: InferenceModelRewrite
metadata: {name: alias}
spec: {poolRef: {name: b}, rules: [{targets: [{modelRewrite: x}, {modelRewrite: y, weight: 1}]}]}
"""


def test_files_of_objects_of_any_pool_are_judged(tmp_path: Path) -> None:
    file = tmp_path / "objects.yaml"
    file.write_text(OBJECTS)
    code, said = checked(file)
    assert code == 0
    warning, verdict = said.splitlines()
    assert warning.startswith(
        f"{file}: warning: document 2 (from line 6): spec.rules[0].targets: some targets"
    )
    assert verdict == f"{file}: ok (1 InferenceObjective, 1 InferenceModelRewrite)"
    file.write_text(OBJECTS.replace("priority", "prioritty").replace("targets", "tragets"))
    code, said = checked(file)
    assert code == 1
    first, second, third = said.splitlines()
    assert first.startswith(
        f"{file}: error: document 1 (from line 1): spec.prioritty: unknown field (did you"
    )
    assert second.startswith(f"{file}: error: document 2 (from line 6): spec.rules[0].tragets: unknown field")
    assert third.endswith("spec.rules[0].targets: is required")


def test_a_configuration_among_objects_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mixed.yaml"
    file.write_text(f"{OBJECTS}---\n{GOOD}")
    code, said = checked(file)
    assert code == 1
    assert "document 3 (from line 11): kind: 'EndpointPickerConfig' is not known here" in said


def test_two_configurations_in_a_file_are_refused_as_such(tmp_path: Path) -> None:
    file = tmp_path / "two.yaml"
    file.write_text(f"{GOOD}---\n{GOOD}")
    code, said = checked(file)
    assert code == 1
    assert said.endswith("expected a single document in the stream, but found another document\n")


def test_a_folder_of_objects_is_judged(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(OBJECTS)
    (tmp_path / "b.yaml").write_text("kind: InferenceObjective")
    code, said = checked(tmp_path)
    assert code == 1
    assert f"{tmp_path}: error: b.yaml: document 1 (from line 1): apiVersion: is required" in said


def test_endpoints_files_of_both_forms_are_judged(tmp_path: Path) -> None:
    plain, extended = tmp_path / "plain.yaml", tmp_path / "extended.yaml"
    plain.write_text("endpoints: [{name: a, address: 10.0.0.1}, {name: a, address: 10.0.0.2}]")
    extended.write_text(
        "apiVersion: pointsman.dev/v1\nkind: EndpointList\nendpoints:\n"
        "- {name: a, address: a.example}\n- {name: b, address: 10.0.0.1, ranks: 2}\n"
    )
    assert checked(extended) == (0, f"{extended}: ok (2 endpoints with addresses, 1 host names)\n")
    assert checked(plain) == (
        1,
        f"{plain}: error: endpoints[1]: left out, endpoints[0] has the same endpoint default/a\n",
    )
    extended.write_text("apiVersion: pointsman.dev/v1\nkind: EndpointsList\nendpoints: []")
    assert checked(extended) == (
        1,
        f"{extended}: error: kind: 'EndpointsList' is not known here; use EndpointList\n",
    )
