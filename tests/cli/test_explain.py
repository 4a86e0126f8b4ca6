"""`pointsman explain` as a command: what it prints, and how it refuses."""

from __future__ import annotations

import http.server
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli import main as dispatcher
from cli.explain_table import render

CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins: [{type: decode-filter}, {type: queue-scorer}]
"""
SNAPSHOT = """
endpoints:
- {name: a, address: "10.0.0.1:8000", waiting: 3, kvUsage: 0.4, dataAgeMs: 12, inflight: 2}
- {name: b, address: "10.0.0.2:8000", waiting: 1, fresh: true}
- {name: c, address: "10.0.0.3:8000", labels: {llm-d.ai/role: prefill}}
"""
TABLE = """\
request explain  model m  TIME  0.100 ms  configuration REVISION
sent to 10.0.0.2:8000
candidates 3 of 3 endpoints

profile default (destination)
  filter decode-filter  3 -> 2
    removed default/c (10.0.0.3:8000): role prefill does not serve decode

  endpoint          total  queue-scorer  age ms  waiting  unseen  running   kv  in flight
  ---------------  ------  ------------  ------  -------  ------  -------  ---  ---------
  * 10.0.0.2:8000  1.0000     1.000 x 1       0        1       0        0   0%          0
    10.0.0.1:8000  0.6000     0.600 x 1      12        3       0        0  40%          2

  picked by max-score-picker: default/b (10.0.0.2:8000) with 1
  runner-up: default/a (10.0.0.1:8000) with 0.6, margin 0.4
"""


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Arguments that name a request, a configuration and a snapshot."""
    (tmp_path / "request.json").write_text('{"model": "m", "prompt": "hello"}')
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / "snapshot.yaml").write_text(SNAPSHOT)
    return [
        *("explain", str(tmp_path / "request.json")),
        *("--config", str(tmp_path / "config.yaml")),
        *("--snapshot", str(tmp_path / "snapshot.yaml")),
    ]


def test_a_decision_is_printed_as_a_table(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert dispatcher.main([*files, "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    (decision,) = json.loads(captured.out)["decisions"]
    decision["durationMs"] = 0.1
    decision["decidedAt"] = 0
    expected = TABLE.replace("TIME", "1970-01-01T00:00:00.000Z").replace("REVISION", decision["config"])
    assert render(decision) == expected

    assert dispatcher.main(files) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[1:] == expected.splitlines()[1:]


def test_a_body_that_cannot_be_read_is_said_without_a_hint_at_sampling(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.json").write_text("{")
    assert dispatcher.main(["explain", str(tmp_path / "broken.json"), *files[2:]]) == 0
    said = capsys.readouterr().out
    assert "rejected at parse: BadRequest: the request body is not valid JSON" in said
    assert "not traced" not in said


def test_text_that_clients_chose_moves_no_cursor(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert dispatcher.main([*files, "--header", "x-request-id: a\x1b[2Jb"]) == 0
    assert capsys.readouterr().out.startswith("request a\N{REPLACEMENT CHARACTER}[2Jb ")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "name the file with the request's body, or a picker with --from"),
        (["r.json"], "nothing says which endpoints there are; give --endpoints or --snapshot"),
        (["r.json", "--endpoints", "/nowhere"], "/nowhere: cannot be read (No such file or directory)"),
        (["r.json", "--snapshot", "s", "--header", "x"], "--header: 'x' is not written as 'Name: value'"),
        (["x", "--from", "ftp://h"], "--from: 'ftp://h' is not an address; write http://HOST:9090"),
        (["x", "--from", "http://h", "--config", "c"], "--config: excludes --from"),
        (["x", "--from", "http://h", "--objects-file", "c"], "--objects-file: excludes --from"),
        (["--from", "http://h"], "give either a request id or --save-snapshot"),
        (["--save-snapshot", "f"], "--save-snapshot: needs the picker to ask; add --from http://HOST:9090"),
    ],
)
def test_a_mistake_is_a_line_on_stderr_and_exit_code_2(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dispatcher.main(["explain", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"pointsman explain: error: {complaint}\n"


class Pages(http.server.BaseHTTPRequestHandler):
    """Answers as some server that is no picker."""

    def do_GET(self) -> None:
        answers = {
            "/debug/decisions/a%2Fb": (404, b'{"error": "no decision is kept"}'),
            "/debug/decisions/odd": (200, b'{"decisions": [{"requestId": 7}]}'),
        }
        status, text = answers.get(self.path, (200, b"<html>"))
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    """The address of such a server."""
    with http.server.HTTPServer(("127.0.0.1", 0), Pages) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{serving.server_port}"
        serving.shutdown()
        thread.join()


def test_a_picker_without_an_answer_is_exit_code_1(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dispatcher.main(["explain", "a/b", "--from", server]) == 1
    assert capsys.readouterr().err == (
        f"pointsman explain: {server}/debug/decisions/a%2Fb: no decision is kept\n"
    )
    assert dispatcher.main(["explain", "odd", "--from", server]) == 1
    assert "in a form that is not known here (KeyError('decidedAt')); see --json" in capsys.readouterr().err
    file = tmp_path / "snapshot.json"
    assert dispatcher.main(["explain", "--from", f"{server}/", "--save-snapshot", str(file)]) == 1
    assert capsys.readouterr().err.endswith("is not the page of a picker\n")
    assert list(tmp_path.iterdir()) == []


def test_a_picker_that_is_not_there_is_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert dispatcher.main(["explain", "x", "--from", "http://127.0.0.1:1"]) == 1
    assert "Connection refused" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (b"SSH-2.0-OpenSSH\r\n", "no answer in HTTP (BadStatusLine('SSH-2.0-OpenSSH"),
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
            "no answer in HTTP (IncompleteRead(",
        ),
        (b"HTTP/1.1 200 OK\r\na: " + b"x" * 70_000, "no answer in HTTP (LineTooLong("),
        (b"HTTP/1.1 404 No\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", "status 404"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000, "is not the page of a picker"),
        (b"", "Remote end closed connection without response"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_whatever_answers_in_the_place_of_a_picker_is_exit_code_1(
    said: bytes, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(said)

        thread = threading.Thread(target=answer)
        thread.start()
        assert (
            dispatcher.main(["explain", "x", "--from", f"http://127.0.0.1:{listener.getsockname()[1]}"]) == 1
        )
        thread.join()
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize("address", ["http://[::1", "http://h:port", "http://h:99999", "ftp://h", "http://"])
def test_an_address_that_is_none_is_exit_code_2(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert dispatcher.main(["explain", "x", "--from", address]) == 2
    assert "is not an address; write http://HOST:9090" in capsys.readouterr().err
