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
    assert shown["dataSources"] == [{"name": "metrics-data-source", "extractors": ["core-metrics-extractor"]}]


def test_the_command_answers_with_its_exit_code(tmp_path: Path, capsys) -> None:
    file = tmp_path / "good.yaml"
    file.write_text(GOOD)
    assert main(["epp", "validate", str(file)]) == 0
    assert capsys.readouterr().out == f"{file}: ok\n"
    file.write_text(BAD)
    assert main(["epp", "validate", str(file)]) == 1
