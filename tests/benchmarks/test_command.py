"""`pointsman bench`: its flags, and a short run with a real Envoy."""

import json
from argparse import Namespace

import pytest

from benchmarks.children import BenchError
from cli.bench import guarded, is_judged, verdict
from cli.main import main


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["bench"], "required: MEASUREMENT"),
        (["bench", "extprox"], "invalid choice: 'extprox'"),
        (["bench", "extproc", "--conections=1"], "unknown flag --conections (did you mean --connections?)"),
        (["bench", "extproc", "--connections=0"], "--connections: 0 is not a number from 1 on"),
        (["bench", "extproc", "--seconds=0"], "--seconds: 0 is not a number above 0"),
        (["bench", "extproc", "--seconds=inf"], "--seconds: inf is not a number above 0"),
        (["bench", "extproc", "--seconds=nan"], "--seconds: nan is not a number above 0"),
        (["bench", "extproc", "--repeat=two"], "--repeat: invalid int value: 'two'"),
        (
            ["bench", "extproc", "--servers=envoy,go"],
            "'envoy,go' is not a list of: envoy, epp, transport, grpc-aio, passing, ipp, ipp-others",
        ),
        (["bench", "extproc", "--modes="], "'' is not a list of: full-duplex, request-only"),
        (["bench", "extproc", "--scrape-interval=fast"], "--scrape-interval: "),
        (["bench", "extproc", "--json=/no/such/folder/x.json"], "/no/such/folder/x.json: No such file"),
        (["bench", "routing", "--rate=-1"], "--rate: -1 is not a number above 0"),
        (
            ["bench", "routing", "--policies=best"],
            "'best' is not a list of: pointsman, round-robin, random, least-request",
        ),
        (["bench", "scrape", "--interval=0s"], "--interval: 0s is not a positive duration"),
    ],
    ids=lambda value: " ".join(value[1:]) if isinstance(value, list) else "",
)
def test_wrong_arguments_are_refused_with_the_reason(arguments: list[str], complaint: str, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err.replace('"', "")


def test_workload_that_would_show_nothing_is_refused(capsys):
    assert main(["bench", "routing", "--replica-share=3"]) == 1
    assert "one replica must not hold all of them" in capsys.readouterr().err


def test_measurement_that_cannot_be_done_says_why(capsys):
    def run(_):
        raise BenchError("epp ended with code 1")

    assert guarded(run)(None) == 1
    assert capsys.readouterr().err == "pointsman bench: error: epp ended with code 1\n"


def test_interrupted_measurement_is_said_to_be_interrupted(capsys):
    def run(_):
        raise KeyboardInterrupt

    assert guarded(run)(None) == 130
    assert capsys.readouterr().err == "pointsman bench: interrupted\n"


@pytest.mark.parametrize(
    ("checked", "others_cores", "judged"),
    [(False, 0.19, True), (False, 0.2, False), (True, 1.5, True)],
    ids=["quiet", "disturbed", "asked for"],
)
def test_figures_are_judged_on_a_quiet_machine_or_when_asked(checked, others_cores, judged):
    assert is_judged(Namespace(check=checked), others_cores) is judged


def test_disturbed_run_is_not_judged_and_says_so(capsys):
    assert verdict(["too slow"], 0.734, judged=False, checked=False) == 0
    assert capsys.readouterr().err == (
        "not judged: other processes used 0.73 cores; repeat it on an idle machine\n"
    )


@pytest.mark.parametrize(("checked", "code"), [(False, 0), (True, 1)])
def test_judged_run_says_what_was_missed_and_fails_only_when_checked(checked, code, capsys):
    assert verdict(["too slow"], 0.1, judged=True, checked=checked) == code
    assert capsys.readouterr().err == "not as promised: too slow\n"


@pytest.mark.integration
def test_envoy_alone_is_measured(tmp_path, capsys):
    figures = tmp_path / "figures.json"
    arguments = ["--servers=envoy", "--seconds=1", "--warmup-s=0.2", "--repeat=1", "--large-body-bytes=0"]
    code = main(["bench", "extproc", *arguments, "--sse-chunks=3", f"--json={figures}", "--check"])
    assert code == 0
    document = json.loads(figures.read_text())
    measurements = document["result"]["measurements"]
    assert [one["scenario"]["kind"] for one in measurements] == ["main", "paced", "stream"]
    for one in measurements:
        assert one["errors"] == {}
        assert one["requests"] > 0
        assert one["cpu_s"]["envoy"] >= 0
        assert one["latency_us"]["p50"] > 0
    assert measurements[2]["sse_chunks"] >= 3
    assert document["complaints"] == []
    assert capsys.readouterr().out.count("closed loop") == 2
