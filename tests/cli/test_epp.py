"""`pointsman epp` as a command: its help, its refusals, and what it hands on."""

import sys
from types import ModuleType

import pytest

from cli import main as dispatcher
from epp.options import FLAGS, EppOptions


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[EppOptions]:
    """Options the picker was run with; it ends at once with exit code 7."""
    runs: list[EppOptions] = []
    module = ModuleType("epp.app")
    module.run = lambda options: runs.append(options) or 7
    monkeypatch.setitem(sys.modules, "epp.app", module)
    return runs


def test_help_names_every_flag_but_the_removed_ones(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        dispatcher.main(["epp", "--grpc-port=1", "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert [flag.name for flag in FLAGS if (f"--{flag.name} " in shown) is bool(flag.removed)] == []


def test_flags_reach_the_picker_and_its_exit_code_comes_back(served: list[EppOptions]):
    assert dispatcher.main(["epp", "-grpc-port=1", "--secure-serving=false", "-v=1"]) == 7
    (options,) = served
    assert (options.grpc_port, options.secure_serving) == (1, False)


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["--grcp-port=1"], 'unknown flag --grcp-port (did you mean "--grpc-port"?)'),
        (["--grpc-port=x"], "--grpc-port: 'x' is not a whole number"),
        (["sim"], "unexpected argument 'sim'; flags begin with --"),
        (["--", "x"], "unexpected argument '--'; flags begin with --"),
    ],
)
def test_a_mistake_is_one_line_on_stderr_and_exit_code_2(
    argv: list[str], complaint: str, served: list[EppOptions], capsys: pytest.CaptureFixture[str]
):
    assert dispatcher.main(["epp", *argv]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        f"pointsman epp: error: {complaint}\nRun 'pointsman epp --help' for what it takes.\n"
    )
    assert served == []
