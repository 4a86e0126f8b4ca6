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
