"""The two ends of `pointsman controlplane follow`, over HTTP: the control plane, and the picker."""

import argparse
import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, NamedTuple

from cli.documents import MAX_ANSWER_BYTES, TIMEOUT_S, refusal, request_of

REQUESTS = "llm_d_epp_request_total"
ERRORS = "llm_d_epp_request_error_total"
PICKER_TIMEOUT_S = 60.0
"""A reload builds everything anew."""


class Problem(NamedTuple):
    """Why a picker refuses a text."""

    path: str
    message: str


class Wanted(NamedTuple):
    """What the control plane wants the picker to run."""

    etag: str
    document: str
    revision: int
    digest: str
    content: str
    is_guarded: bool


class Counts(NamedTuple):
    """Requests and errors since the picker's start."""

    requests: int
    errors: int


class Running(NamedTuple):
    """What a picker says of its configuration."""

    revision: str
    """The first characters of the SHA-256 of the text it runs."""
    refused: list[str]
    """What is wrong with the newest text of its file; empty when it runs that."""


class UnreachableError(Exception):
    """The other end does not answer, or not as it should; the text says which and why."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status
        """Of a refusal; 0 when there was no response."""


class Answer:
    """Status, headers and body of a response, whatever the status."""

    def __init__(self, status: int, headers: Any, body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body


def ask(who: str, request: urllib.request.Request, timeout_s: float) -> Answer:
    """Send a request. `UnreachableError` when there is no response."""
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:  # noqa: S310 - http or https, checked
            return Answer(answer.status, answer.headers, answer.read(MAX_ANSWER_BYTES))
    except urllib.error.HTTPError as error:
        if error.code == http.client.NOT_MODIFIED:
            error.close()
            return Answer(error.code, error.headers, b"")
        with error:
            if who == ControlPlane.NAME:
                raise UnreachableError(f"{who}: {refusal(error)}", error.code) from None
            return Answer(error.code, error.headers, _rest(error))
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        reason = getattr(error, "reason", error)
        raise UnreachableError(f"{who} at {request.host} cannot be reached: {reason}") from None


def _rest(error: urllib.error.HTTPError) -> bytes:
    try:
        return error.read(MAX_ANSWER_BYTES)
    except (OSError, http.client.HTTPException):
        return b""


class ControlPlane:
    """Asks and reports for one worker."""

    NAME = "the control plane"

    def __init__(self, arguments: argparse.Namespace, pool: str, worker: str) -> None:
        self._arguments = arguments
        self._pool = urllib.parse.quote(pool, safe="")
        self._worker = urllib.parse.quote(worker, safe="")
        request_of(arguments, "GET", "")  # says at once what is wrong with address and token

    def wanted(self, etag: str) -> Wanted | None:
        """What the picker should run; None when that is what `etag` names, or nothing is published."""
        request = request_of(self._arguments, "GET", f"workers/{self._worker}/config?pool={self._pool}")
        request.add_header("X-Pointsman-Channel", "automation")
        if etag:
            request.add_header("If-None-Match", etag)
        answer = ask(self.NAME, request, TIMEOUT_S)
        if answer.status in {http.client.NO_CONTENT, http.client.NOT_MODIFIED}:
            return None
        try:
            said = json.loads(answer.body)
            return Wanted(
                str(answer.headers["ETag"]),
                str(said["document"]),
                int(said["revision"]),
                str(said["digest"]),
                str(said["content"]),
                bool(said["isGuarded"]),
            )
        except (ValueError, KeyError, TypeError):
            raise UnreachableError(f"{self.NAME} does not answer as one does") from None

    def acknowledge(self, wanted: Wanted, problems: list[Problem]) -> None:
        """Report a revision as applied, or as refused because of problems."""
        told = [{"path": problem.path, "message": problem.message} for problem in problems]
        self._post("acks", wanted, {"problems": told})

    def observe(self, wanted: Wanted, counts: Counts) -> None:
        """Report totals since the revision runs."""
        self._post("observations", wanted, {"requests": counts.requests, "errors": counts.errors})

    def _post(self, what: str, wanted: Wanted, said: dict[str, Any]) -> None:
        body = {"document": wanted.document, "revision": wanted.revision, **said}
        request = request_of(self._arguments, "POST", f"workers/{self._worker}/{what}", json.dumps(body))
        request.add_header("X-Pointsman-Channel", "automation")
        try:
            ask(self.NAME, request, TIMEOUT_S)
        except UnreachableError as error:
            # What the report is about is gone, so that repeating it would be refused for ever.
            if error.status not in {http.client.NOT_FOUND, http.client.UNPROCESSABLE_ENTITY}:
                raise


class PickerPages:
    """What a picker shows and does on its metrics port."""

    NAME = "the picker"

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    def reload(self) -> Running:
        """Let it read its files now, and see what came of its configuration."""
        self._ask("POST", "debug/reload")
        return self.running()

    def running(self) -> Running:
        """Which text it runs, and what is wrong with the newest."""
        answer = self._ask("GET", "debug/config")
        try:
            said = json.loads(answer.body)["reload"]
            return Running(str(said["revision"]), [str(line) for line in said["refused"]])
        except (ValueError, KeyError, TypeError):
            message = f"{self.NAME} does not answer as one does: /debug/config: HTTP {answer.status}"
            raise UnreachableError(message) from None

    def counts(self) -> Counts:
        """Requests and errors since its start."""
        totals = {REQUESTS: 0.0, ERRORS: 0.0}
        for line in self._ask("GET", "metrics").body.decode(errors="replace").splitlines():
            name = line.partition("{")[0].partition(" ")[0]
            if name in totals:
                totals[name] += _number(line.rpartition(" ")[2])
        return Counts(int(totals[REQUESTS]), int(totals[ERRORS]))

    def _ask(self, method: str, path: str) -> Answer:
        data = b"" if method == "POST" else None
        request = urllib.request.Request(f"{self._url}/{path}", data, method=method)  # noqa: S310 - checked
        return ask(self.NAME, request, PICKER_TIMEOUT_S)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
