"""A process loads what it needs: proven in fresh interpreters, because this one has loaded everything."""

import importlib.util
import json
import subprocess
import sys

import pytest

HEAVY = {
    "aiohttp",
    "benchmarks",
    "celery",
    "django",
    "grpc",
    "kubernetes",
    "openai",
    "rest_framework",
    "rich",
}

DATA_PLANE = [
    name
    for name in ("dataplane.extproc.server", "epp.app", "epp.plugins.catalog")
    if importlib.util.find_spec(name) is not None
]


def loaded_by(code: str) -> set[str]:
    """Top-level names in `sys.modules` after running `code` in a fresh interpreter."""
    report = "import json, sys; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"], check=True, capture_output=True, text=True
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def show_help(*subcommand: str) -> str:
    """Code that asks the command for its help and keeps the text off stdout."""
    return (
        "import contextlib, io, cli.main\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        f"    cli.main.main({[*subcommand, '--help']!r})"
    )


@pytest.mark.parametrize("module", ["dataplane", *DATA_PLANE])
def test_data_plane_module_loads_no_framework(module: str):
    assert loaded_by(f"import {module}") & (HEAVY | {"cli", "simulator"}) == set()


def test_command_loads_no_subcommand_until_one_is_chosen():
    unwanted = HEAVY | {"dataplane", "epp", "msgspec", "numpy", "simulator", "yaml"}
    assert loaded_by(show_help()) & unwanted == set()


def test_help_of_a_process_loads_no_framework_and_no_sibling():
    present = [name for name in ("epp", "sim", "version") if importlib.util.find_spec(f"cli.{name}")]
    siblings = {"epp": {"simulator"}, "sim": {"epp"}, "version": {"epp", "simulator", "dataplane"}}
    loaded = {name: loaded_by(show_help(name)) & (HEAVY | siblings[name]) for name in present}
    assert loaded == {name: set() for name in present}
