"""Flags as Go takes them, and what is said about those nobody knows."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.errors import ConfigError
from dataplane.flags import Flag, Kind, parse_flags

FLAGS = (
    Flag("grpc-port", Kind.NUMBER, "9002", "port"),
    Flag("drain", Kind.SWITCH, "false", "switch"),
    Flag("timeout", Kind.DURATION, "1s", "duration"),
    Flag("size", Kind.QUANTITY, "1Mi", "quantity"),
    Flag("suites", Kind.LIST, "", "list"),
    Flag("name", Kind.TEXT, "", "text"),
    Flag("v", Kind.NUMBER, "2", "verbosity", short="v"),
    Flag("old-flag", Kind.TEXT, "", "", removed="use --name"),
)


@pytest.mark.parametrize(
    ("argv", "given"),
    [
        ([], {}),
        (["--grpc-port=1"], {"grpc-port": 1}),
        (["--grpc-port", "1"], {"grpc-port": 1}),
        (["-grpc-port=1"], {"grpc-port": 1}),
        (["-grpc-port", "1"], {"grpc-port": 1}),
        (["--grpc-port=1", "--grpc-port=2"], {"grpc-port": 2}),
        (["--grpc-port", "-5"], {"grpc-port": -5}),
        (["--drain"], {"drain": True}),
        (["-drain"], {"drain": True}),
        (["--drain=false"], {"drain": False}),
        (["--drain=T", "--drain=0"], {"drain": False}),
        (["--drain", "--name", "x"], {"drain": True, "name": "x"}),
        (["--name="], {"name": ""}),
        (["--name", ""], {"name": ""}),
        (["--name=a=b"], {"name": "a=b"}),
        (["--timeout", "-1s"], {"timeout": -1.0}),
        (["--size=16Mi"], {"size": 16 << 20}),
        (["--suites=a, b,,", "--suites", "c"], {"suites": ("a", "b", "c")}),
        (["-v=4"], {"v": 4}),
        (["-v", "4"], {"v": 4}),
        (["-v4"], {"v": 4}),
        (["--v=4"], {"v": 4}),
    ],
)
def test_reads_what_go_reads(argv: list[str], given: dict[str, object]):
    assert parse_flags(FLAGS, argv) == given


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["--grcp-port=1"], 'unknown flag --grcp-port (did you mean "--grpc-port"?)'),
        (["--grpc_port=1"], 'unknown flag --grpc_port (did you mean "--grpc-port"?)'),
        (["-grcp-port=1"], 'unknown flag --grcp-port (did you mean "--grpc-port"?)'),
        (["--GRPC-PORT=1"], "unknown flag --GRPC-PORT"),
        (["--zzz"], "unknown flag --zzz"),
        (["--=1"], "unknown flag --"),
        (["--old-flag=1"], "--old-flag: was removed: use --name"),
        (["--old-flag"], "--old-flag: was removed: use --name"),
        (["--grpc-port"], "--grpc-port: needs a value; write --grpc-port=<number>"),
        (["--grpc-port", "--drain"], "--grpc-port: needs a value; write --grpc-port=<number>"),
        (["-v"], "--v: needs a value; write --v=<number>"),
        (["--grpc-port=x"], "--grpc-port: 'x' is not a whole number"),
        (["--grpc-port=1.5"], "--grpc-port: '1.5' is not a whole number"),
        (["--grpc-port=\u0661"], "--grpc-port: '\u0661' is not a whole number"),
        (["--drain=perhaps"], "--drain: 'perhaps' is neither true nor false"),
        (["--drain", "false"], "--drain: a switch takes its value with =; write --drain=false"),
        (
            ["--timeout=5"],
            "--timeout: '5' is not a duration; write a number and a unit, such as 50ms, 2s or 1m30s",
        ),
        (["--size=-1"], "--size: '-1' is not a quantity; write a number with an optional suffix"),
        (["word"], "unexpected argument 'word'; flags begin with --"),
        (["--"], "unexpected argument '--'; flags begin with --"),
        (["-"], "unexpected argument '-'; flags begin with --"),
        (["x" * 200], f"unexpected argument '{'x' * 60}...'; flags begin with --"),
    ],
)
def test_refuses_everything_else_and_names_the_flag(argv: list[str], complaint: str):
    with pytest.raises(ConfigError) as caught:
        parse_flags(FLAGS, argv)
    assert str(caught.value).startswith(complaint)


@given(
    st.lists(
        st.sampled_from(["--", "-", "v", "=", "grpc-port", "1", "drain", "name", ","]).map(str), max_size=6
    )
)
def test_any_words_are_read_or_refused(words: list[str]):
    for argv in (words, ["".join(words)]):
        with contextlib.suppress(ConfigError):
            assert parse_flags(FLAGS, argv).keys() <= {flag.name for flag in FLAGS}
