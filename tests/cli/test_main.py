"""The dispatcher: what it runs, what it refuses and what it says."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from cli import main as dispatcher
from cli.arguments import Parser, Subparsers


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A subcommand `probe` with one flag and one nested subcommand, installed in the table."""
    module = ModuleType("cli_probe")

    def add_parser(subparsers: Subparsers) -> None:
        parser = subparsers.add_parser("probe")
        parser.add_argument("--grpc-port", type=int, default=9002)
        parser.set_defaults(run=lambda arguments: arguments.grpc_port % 256)
        nested = parser.add_subparsers(parser_class=Parser)
        nested.add_parser("routing").add_argument("--requests")

    module.add_parser = add_parser
    monkeypatch.setitem(sys.modules, "cli_probe", module)
    monkeypatch.setitem(dispatcher.SUBCOMMANDS, "probe", ("cli_probe", "for tests"))
    return module


def test_help_lists_every_subcommand_on_stdout(capsys: pytest.CaptureFixture[str]):
    assert dispatcher.main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert [name for name in dispatcher.SUBCOMMANDS if f"\n  {name}" not in shown] == []


def test_no_arguments_is_a_usage_error_with_the_overview_on_stderr(capsys: pytest.CaptureFixture[str]):
    assert dispatcher.main([]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", dispatcher.overview())


@pytest.mark.parametrize(
    ("word", "complaint"),
    [
        pytest.param("ep", "unknown subcommand 'ep' (did you mean \"epp\"?)", id="near"),
        pytest.param("zzz", "unknown subcommand 'zzz'", id="far"),
        pytest.param("--versoin", "unknown flag '--versoin' (did you mean \"--version\"?)", id="flag"),
    ],
)
def test_unknown_word_is_refused(word: str, complaint: str, capsys: pytest.CaptureFixture[str]):
    assert dispatcher.main([word]) == 2
    assert capsys.readouterr().err.splitlines()[0] == f"pointsman: error: {complaint}"


def test_subcommand_gets_its_arguments_and_gives_the_exit_code(probe: ModuleType):
    assert dispatcher.main(["probe", "--grpc-port", "7"]) == 7


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        pytest.param(
            ["--grcp-port=1"],
            'pointsman probe: error: unknown flag --grcp-port (did you mean "--grpc-port"?)',
            id="typo",
        ),
        pytest.param(
            ["--grpc=1"],
            'pointsman probe: error: unknown flag --grpc (did you mean "--grpc-port"?)',
            id="prefix-is-no-abbreviation",
        ),
        pytest.param(
            ["routing", "--request", "1"],
            'pointsman probe routing: error: unknown flag --request (did you mean "--requests"?)',
            id="nested",
        ),
        pytest.param(
            ["--grpc-port", "x"],
            "pointsman probe: error: argument --grpc-port: invalid int value: 'x'",
            id="value",
        ),
    ],
)
def test_wrong_flag_is_refused_by_the_subcommand_it_was_meant_for(
    arguments: list[str], complaint: str, probe: ModuleType, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as exit_:
        dispatcher.main(["probe", *arguments])
    assert exit_.value.code == 2
    assert capsys.readouterr().err.splitlines()[0] == complaint


def test_missing_optional_package_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setitem(dispatcher.SUBCOMMANDS, "probe", ("package_that_is_not_installed.sub", "for tests"))
    assert dispatcher.main(["probe"]) == 1
    error = capsys.readouterr().err
    assert "the package 'package_that_is_not_installed' is not installed" in error
    assert "pip install 'pointsman[local]'" in error


def test_missing_module_of_our_own_is_not_blamed_on_the_installation(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(dispatcher.SUBCOMMANDS, "probe", ("cli.no_such_module", "for tests"))
    with pytest.raises(ModuleNotFoundError):
        dispatcher.main(["probe"])


def test_version_names_the_distribution_and_the_interpreter(capsys: pytest.CaptureFixture[str]):
    assert dispatcher.main(["--version"]) == 0
    version = f"{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}"
    shown = capsys.readouterr().out
    assert shown.startswith("pointsman ")
    assert shown.endswith(f"(Python {version})\n")


def test_a_reader_that_has_enough_is_no_failure_worth_a_traceback(tmp_path: Path):
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        command = [sys.executable, "-m", "cli.main", "epp", "schema"]
        done = subprocess.run(command, check=False, stdout=write_end, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(write_end)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_file_name_that_is_no_text_is_told_all_the_same(tmp_path: Path):
    file = os.fsencode(tmp_path / "name") + b"\xff"
    Path(os.fsdecode(file)).write_text("plugins: [")
    command = [sys.executable, "-m", "cli.main", "epp", "validate", file]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith(f"{tmp_path}/name\\udcff: error: line 1, column 11: ")
