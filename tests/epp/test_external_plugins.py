"""The example package of the documentation is installed, validated and decides in a picker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from cli.main import main
from dataplane.errors import ConfigError
from dataplane.extproc.exchange import Ending
from epp.app import Picker
from epp.options import EppOptions
from tests.support.plugin_packages import install, install_project
from tests.support.request_path import destination, http_request
from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs/examples/plugin-package"
CONFIG = EXAMPLE / "config.yaml"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that packages are found in, and where nothing else is."""
    installed = tmp_path / "installed"
    installed.mkdir()
    monkeypatch.syspath_prepend(str(installed))
    return installed


def options(tmp_path: Path, **fields: object) -> EppOptions:
    """Options of a picker of three endpoints, two of which have a cost, on free ports."""
    costs = {"dear": "4", "cheap": "0.5", "unknown": "much"}
    listed = [
        {
            "name": name,
            "address": "127.0.0.1",
            "port": str(port),
            "labels": {"example.com/cost-per-hour": cost},
        }
        for port, (name, cost) in enumerate(costs.items(), start=1)
    ]
    endpoints = tmp_path / "endpoints.yaml"
    endpoints.write_text(json.dumps({"endpoints": listed}))
    return EppOptions(
        grpc_port=0,
        grpc_health_port=0,
        metrics_port=0,
        host="127.0.0.1",
        metrics_host="127.0.0.1",
        secure_serving=False,
        config_file=str(CONFIG),
        endpoints_file=str(endpoints),
        watch_config=False,
        **fields,  # type: ignore[arg-type]
    )


async def test_the_example_package_decides_in_a_picker(folder: Path, tmp_path: Path):
    install_project(EXAMPLE, folder)
    picker = Picker(options(tmp_path))
    assert picker.packages == {"label-cost-scorer": "example-cost-scorer 1.0.0"}
    await picker.start()
    try:
        exchange = picker.handler.open()
        decision = exchange.on_request(http_request(), lambda decision: None)
        assert destination(decision) == "127.0.0.1:2"
        exchange.on_end(Ending.DISCONNECT)
    finally:
        await picker.stop()


def test_without_external_plugins_the_type_is_unknown(folder: Path, tmp_path: Path):
    install_project(EXAMPLE, folder)
    with pytest.raises(ConfigError, match="plugin type 'label-cost-scorer' is not registered"):
        Picker(options(tmp_path, external_plugins=False))


def test_a_broken_package_ends_the_start_unless_it_is_disabled(folder: Path, tmp_path: Path):
    install(folder, "broken", "3", {"mine": "no_module_of_this_name:X"})
    with pytest.raises(ConfigError) as caught:
        Picker(options(tmp_path))
    assert str(caught.value) == (
        "installed package broken 3: plugin type 'mine' cannot be loaded from no_module_of_this_name:X: "
        "No module named 'no_module_of_this_name'; mend or uninstall the package, or use "
        "--external-plugins=false"
    )


def test_validate_and_schema_know_the_package(folder: Path, capsys: pytest.CaptureFixture[str]):
    install_project(EXAMPLE, folder)
    assert main(["epp", "validate", "--show-defaults", str(CONFIG)]) == 0
    first, _, rest = capsys.readouterr().out.partition("\n")
    assert first == f"{CONFIG}: ok"
    (profile,) = yaml.safe_load(rest)["schedulingProfiles"]
    assert {"name": "label-cost-scorer", "weight": 2.0} in profile["scorers"]
    assert main(["epp", "schema"]) == 0
    definition = json.loads(capsys.readouterr().out)["definitions"]["parameters.label-cost-scorer"]
    assert definition["properties"]["defaultCost"] == {
        "type": ["number", "null"],
        "exclusiveMinimum": 0,
        "description": "Cost of an endpoint whose label says none.",
        "default": 1.0,
    }
    assert main(["epp", "validate", "--external-plugins", "false", str(CONFIG)]) == 1
    assert "plugin type 'label-cost-scorer' is not registered" in capsys.readouterr().out


def test_a_broken_package_ends_validate_and_schema(folder: Path, capsys: pytest.CaptureFixture[str]):
    install(folder, "broken", "3", {"queue-scorer": "x:X"})
    expected = (
        "pointsman epp: error: installed package broken 3: plugin type 'queue-scorer' is built in; mend or "
        "uninstall the package, or use --external-plugins=false\n"
    )
    for action in (["validate", str(CONFIG)], ["schema"]):
        assert main(["epp", *action]) == 2
        assert capsys.readouterr() == ("", expected)


def test_a_process_finds_what_is_on_its_path(tmp_path: Path):
    install_project(EXAMPLE, tmp_path)
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    command = [sys.executable, "-m", "cli.main", "epp", "validate", str(CONFIG)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{CONFIG}: ok\n", "")
