"""Configurations of the kinds llm-d's guides describe load, or are refused for exactly what is missing.

Beside each file stands what is expected of it: the warnings, the plugins that are created by default, the
order of the producers, and the profiles; or the mistakes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from cli.main import main
from dataplane.extproc.exchange import Ending
from epp.app import Picker
from epp.config_schema import config_schema
from epp.graph.registry import REGISTRY
from epp.options import EppOptions
from tests.support.request_path import destination, http_request

FOLDER = Path(__file__).parents[1] / "vectors/configs"
FILES = sorted(path for path in FOLDER.glob("*.yaml") if not path.name.endswith(".expected.yaml"))
LABELS = {
    "example.com/base-model": "small",
    "example.com/set": "chat",
    "disaggregatedset.x-k8s.io/revision": "one",
    "tier": "gold",
}
ROLES = {1: "prefill", 2: "encode", 3: "decode", 4: "decode"}
ENDPOINTS = [
    {
        "name": f"e{port}",
        "address": "127.0.0.1",
        "port": str(port),
        "labels": {**LABELS, "llm-d.ai/role": role, "disaggregatedset.x-k8s.io/role": role},
    }
    for port, role in ROLES.items()
]
STAGED = ("header-chosen", "multimodal-epd", "pd-", "session-affinity-stages", "topology")
"""Files whose destination must be a decode endpoint; all others may send a request anywhere."""

VALIDATOR = jsonschema.Draft7Validator(config_schema(REGISTRY))

each_file = pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)


def expectation(file: Path) -> dict[str, Any]:
    """What stands beside a file."""
    found: dict[str, Any] = yaml.safe_load(file.with_suffix(".expected.yaml").read_text())
    return found


def types_of(file: Path) -> list[str]:
    """The plugin types a file configures."""
    return [plugin["type"] for plugin in yaml.safe_load(file.read_text()).get("plugins", [])]


def validate(file: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str], list[str], str]:
    """Exit code, mistakes and warnings of `pointsman epp validate`, and what the file comes to."""
    flags = ["--allow-experimental-plugins"] if expectation(file).get("experimental") else []
    code = main(["epp", "validate", "--show-defaults", "--external-plugins", "false", *flags, str(file)])
    said, _, shown = capsys.readouterr().out.partition(f"{file}: ok\n")
    lines = said.splitlines()
    told = {kind: f"{file}: {kind}: " for kind in ("error", "warning")}
    assert all(line.startswith(tuple(told.values())) for line in lines)
    errors = [line.removeprefix(told["error"]) for line in lines if line.startswith(told["error"])]
    warnings = [line.removeprefix(told["warning"]) for line in lines if line.startswith(told["warning"])]
    return code, errors, warnings, shown


def outline(shown: str) -> dict[str, Any]:
    """The parts of what a file comes to that expectations speak of."""
    comes_to = yaml.safe_load(shown)
    return {
        "created": [plugin["name"] for plugin in comes_to["plugins"] if plugin.get("createdByDefault")],
        "producers": comes_to["dataProducers"],
        "handler": comes_to["profileHandler"],
        "profiles": {
            profile["name"]: [
                *profile["filters"],
                *({scorer["name"]: scorer["weight"]} for scorer in profile["scorers"]),
                profile["picker"],
            ]
            for profile in comes_to["schedulingProfiles"]
        },
        "sources": {source["name"]: source["extractors"] for source in comes_to["dataSources"]},
    }


def picker_of(file: Path, folder: Path) -> Picker | None:
    """A picker of the endpoints with the file's configuration; None when that is refused."""
    expected = expectation(file)
    if "errors" in expected:
        return None
    endpoints = folder / "endpoints.yaml"
    endpoints.write_text(yaml.safe_dump({"endpoints": ENDPOINTS}))
    text = file.read_text().replace("/etc/epp/endpoints.yaml", str(endpoints))
    options = EppOptions(
        grpc_port=0,
        grpc_health_port=0,
        metrics_port=0,
        host="127.0.0.1",
        metrics_host="127.0.0.1",
        secure_serving=False,
        config_text=text,
        endpoints_file="" if str(endpoints) in text else str(endpoints),
        allow_experimental_plugins=bool(expected.get("experimental")),
        external_plugins=False,
    )
    return Picker(options)


def destinations(file: Path) -> set[str]:
    """Where a request may be sent under a file."""
    if file.stem == "wide-ep-data-parallel":
        return {"127.0.0.1:8200"}  # the primary port, whichever rank was chosen
    ports = [port for port, role in ROLES.items() if role == "decode" or not file.stem.startswith(STAGED)]
    return {f"127.0.0.1:{port}" for port in ports}


@each_file
def test_a_sample_loads_or_is_refused_for_what_is_missing(file: Path, capsys: pytest.CaptureFixture[str]):
    expected = expectation(file)
    code, errors, warnings, shown = validate(file, capsys)
    if "errors" in expected:
        assert (code, errors, shown) == (1, expected["errors"], "")
    else:
        assert (code, errors) == (0, [])
        assert warnings == expected["warnings"]
        comes_to = outline(shown)
        assert comes_to == {name: expected[name] for name in comes_to}


@each_file
async def test_a_sample_that_loads_decides(file: Path, tmp_path: Path):
    picker = picker_of(file, tmp_path)
    if picker is None:
        return
    await picker.start()
    try:
        exchange = picker.handler.open()
        decision = exchange.on_request(http_request(), lambda decision: None)
        assert destination(decision).partition(",")[0] in destinations(file)
        exchange.on_end(Ending.DISCONNECT)
    finally:
        await picker.stop()


@each_file
def test_a_sample_reads_alike_in_the_old_group(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    old = tmp_path / file.name
    old.write_text(file.read_text().replace("llm-d.ai/v1alpha1", "inference.networking.x-k8s.io/v1alpha1"))
    beside = file.with_suffix(".expected.yaml")
    (tmp_path / beside.name).write_text(beside.read_text())
    code, errors, warnings, shown = validate(file, capsys)
    warning = "apiVersion inference.networking.x-k8s.io/v1alpha1 is deprecated; use llm-d.ai/v1alpha1"
    warned = warnings if file.stem == "old-group" or errors else [*warnings, warning]
    again = validate(old, capsys)
    assert (again[0], again[1], sorted(again[2]), again[3]) == (code, errors, sorted(warned), shown)


@each_file
def test_every_missing_type_is_named_and_no_other(file: Path, capsys: pytest.CaptureFixture[str]):
    _, errors, _, _ = validate(file, capsys)
    named = [error.split("'")[1] for error in errors if "is not registered" in error]
    assert named == [kind for kind in types_of(file) if kind not in REGISTRY]


@each_file
def test_the_schema_accepts_what_loads_and_flags_missing_types(file: Path):
    found = {
        error.instance if error.validator == "enum" else error.message
        for error in VALIDATOR.iter_errors(yaml.safe_load(file.read_text()))
    }
    assert found == {kind for kind in types_of(file) if kind not in REGISTRY}


def test_experimental_samples_need_the_flag(capsys: pytest.CaptureFixture[str]):
    assert main(["epp", "validate", str(FOLDER / "payload-agnostic.yaml")]) == 1
    assert "plugin 'session-affinity-scorer'" in capsys.readouterr().out


def test_every_expectation_has_its_file():
    beside = {path.name.removesuffix(".expected.yaml") for path in FOLDER.glob("*.expected.yaml")}
    assert beside == {file.stem for file in FILES}
