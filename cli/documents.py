"""`pointsman apply`, `diff`, `export` and `get`: the control plane's objects as documents, over its API."""

import argparse
import http.client
import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from cli import profile
from cli.arguments import Subparsers, suggestion

DEFAULT_URL: Final = "http://127.0.0.1:8800"
URL: Final = "POINTSMAN_URL"
TOKEN: Final = "POINTSMAN_TOKEN"  # noqa: S105 - the variable's name
TIMEOUT_S: Final = 30.0
MAX_ANSWER_BYTES: Final = 256 << 20
MAX_APPLIED_BYTES: Final = 8 << 20
"""What the control plane takes in one request."""
PAGE: Final = 500
FAILED: Final = 1
ASKED_WRONGLY: Final = 2
SIGNS: Final = {"create": "+", "update": "~", "unchanged": " "}
KINDS: Final = {
    "inferencepool": "pools",
    "endpointlist": "endpointlists",
    "inferenceobjective": "objectives",
    "inferencemodelrewrite": "modelrewrites",
    "tenant": "tenants",
    "virtualkey": "virtualkeys",
    "endpointpickerconfig": "endpointpickerconfigs",
    "providercredential": "providercredentials",
    "provider": "providers",
    "modelroute": "modelroutes",
    "modelprice": "modelprices",
    "guardrailpolicy": "guardrailpolicies",
    "payloadprocessorconfig": "payloadprocessorconfigs",
    "gateway": "gateways",
}
"""Other names of what the API's addresses call the kinds."""
WORKERS: Final = "workers"
KNOWN: Final = (*KINDS.values(), WORKERS)
"""What can be read by `get`."""


class RefusedError(Exception):
    """The control plane cannot be reached, or refuses; the text says why, line by line."""


def add_parser(subparsers: Subparsers) -> None:
    """Add the four subcommands."""
    apply = subparsers.add_parser("apply", help="create or change what documents describe")
    add_files(apply)
    apply.add_argument("--dry-run", action="store_true", help="only show what would change")
    apply.set_defaults(run=partial(guarded, "apply", run_apply))
    diff = subparsers.add_parser("diff", help="show what applying documents would change")
    add_files(diff)
    diff.set_defaults(run=partial(guarded, "diff", run_apply), dry_run=True)
    export = subparsers.add_parser("export", help="print everything as documents")
    export.add_argument("kinds", nargs="*", metavar="KIND", help="only these kinds")
    export.set_defaults(run=partial(guarded, "export", run_export))
    get = subparsers.add_parser("get", help="print objects of a kind, or one of them")
    get.add_argument("kind", help=f"{', '.join(KNOWN)}, or the kind's own name")
    get.add_argument("name", nargs="?", help="one object; without it all")
    get.add_argument("--status", action="store_true", help="what runs for it, and how it fares (pools)")
    get.set_defaults(run=partial(guarded, "get", run_get))
    for parser in (apply, diff, export, get):
        add_url(parser)


def add_files(parser: argparse.ArgumentParser) -> None:
    """Say which documents are meant, also in kubectl's words."""
    parser.add_argument("files", nargs="*", metavar="FILE", help="YAML or JSON documents; - is stdin")
    parser.add_argument(
        *("-f", "--filename"), action="append", default=[], metavar="FILE", help="the same; may be repeated"
    )


def guarded(name: str, run: Callable[[argparse.Namespace], int], arguments: argparse.Namespace) -> int:
    """Turn a refusal into lines on stderr and an exit code."""
    try:
        return run(arguments)
    except RefusedError as error:
        for line in str(error).splitlines():
            sys.stderr.write(f"pointsman {name}: error: {line}\n")
        return FAILED
    except BrokenPipeError:  # whoever reads what is printed has enough
        raise
    except OSError as error:
        sys.stderr.write(f"pointsman {name}: error: {error.filename}: {error.strerror}\n")
        return ASKED_WRONGLY


def run_apply(arguments: argparse.Namespace) -> int:
    """Apply files together, or plan to."""
    names = [*arguments.files, *arguments.filename]
    if not names:
        raise RefusedError("name at least one file of documents; - is stdin")
    query = "?dry_run=true" if arguments.dry_run else ""
    plan = call(arguments, "POST", f"apply{query}", "\n---\n".join(read_texts(names)))
    if not plan["steps"]:
        sys.stderr.write("there are no documents in what is to be applied\n")
    for step in plan["steps"]:
        print(f"{SIGNS[step['action']]} {step['kind']} {step['name']}: {step['action']}")
        for change in step["changes"]:
            print(f"    {change['path']}: {shown(change['before'])} -> {shown(change['after'])}")
    for warning in plan["warnings"]:
        sys.stderr.write(f"warning: {warning['path']}: {warning['message']}\n")
    return 0


def read_texts(names: Sequence[str]) -> list[str]:
    """What the files hold, stdin once. `RefusedError` for what is no text, or more than is ever applied."""
    texts: list[str] = []
    left = MAX_APPLIED_BYTES
    for name in dict.fromkeys(names):
        shown = "stdin" if name == "-" else name
        with sys.stdin.buffer if name == "-" else Path(name).open("rb") as file:
            found = file.read(left + 1)
        left -= len(found)
        if left < 0:
            raise RefusedError(f"{shown}: at most {MAX_APPLIED_BYTES} bytes are applied at once")
        try:
            texts.append(found.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            raise RefusedError(f"{shown}: is no UTF-8 text (byte {error.start})") from None
    return texts


def run_export(arguments: argparse.Namespace) -> int:
    """Print everything as YAML."""
    import yaml

    wanted = {known_plural(kind) for kind in arguments.kinds} - {WORKERS}
    if arguments.kinds and not wanted:
        raise RefusedError("workers come and go by themselves and are no documents")
    documents = call(arguments, "GET", "export")["documents"]
    if wanted:
        documents = [document for document in documents if plural_of(document["kind"]) in wanted]
    sys.stdout.write(yaml.safe_dump_all(documents, sort_keys=False) if documents else "")
    return 0


def run_get(arguments: argparse.Namespace) -> int:
    """Print objects as YAML."""
    import yaml

    plural = known_plural(arguments.kind)
    if arguments.status and arguments.name is None:
        raise RefusedError("--status needs the name of one object")
    if arguments.name is not None:
        part = "/status" if arguments.status else ""
        found = [call(arguments, "GET", f"{plural}/{urllib.parse.quote(arguments.name, safe='')}{part}")]
    else:
        found = []
        while True:
            page = call(arguments, "GET", f"{plural}?limit={PAGE}&offset={len(found)}")
            found += page["items"]
            if not page["items"] or len(found) >= page["total"]:
                break
    sys.stdout.write(yaml.safe_dump_all(found, sort_keys=False) if found else "")
    return 0


def plural_of(kind: str) -> str:
    """What the API's addresses call a kind, given that or its own name."""
    return KINDS.get(kind.lower(), kind)


def known_plural(kind: str) -> str:
    """The same. `RefusedError` for what is no kind."""
    plural = plural_of(kind)
    if plural not in KNOWN:
        raise RefusedError(f"{kind} is no kind{suggestion(kind, KNOWN)}; there are {', '.join(KNOWN)}")
    return plural


def shown(value: Any) -> str:
    """One side of a change."""
    return "absent" if value is None else json.dumps(value, ensure_ascii=False)


def add_url(parser: argparse.ArgumentParser) -> None:
    """Say where the control plane is, and who asks."""
    parser.add_argument(
        "--url",
        default=None,
        help=f"the control plane (default: ${URL}, that of 'pointsman up', {DEFAULT_URL})",
    )
    parser.description = (
        f"The token is read from ${TOKEN}; 'pointsman up' leaves one for its own control plane."
    )


def call(
    arguments: argparse.Namespace, method: str, path: str, text: str | None = None, version: str | None = None
) -> Any:
    """One request to the API, for a version of an object. `RefusedError` when there is no good answer."""
    request = request_of(arguments, method, path, text)
    if version is not None:
        request.add_header("If-Match", f'"{version}"')
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310 - checked above
            return json.loads(answer.read(MAX_ANSWER_BYTES))
    except urllib.error.HTTPError as error:
        raise RefusedError(refusal(error)) from None
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        reason = getattr(error, "reason", error)
        raise RefusedError(f"{request.type}://{request.host} cannot be reached: {reason}") from None
    except ValueError as error:
        raise RefusedError(
            f"{request.type}://{request.host} does not answer as a control plane does: {error}"
        ) from None


def request_of(
    arguments: argparse.Namespace, method: str, path: str, text: str | None = None
) -> urllib.request.Request:
    """A request to the API. `RefusedError` when it is not said where that is, or who asks."""
    base, token = asked_control_plane(arguments.url)
    if not base.startswith(("http://", "https://")):
        raise RefusedError(f"{base} is no http or https URL")
    if not token:
        raise RefusedError(
            f"set {TOKEN} to an API token; 'pointsman controlplane token' makes one "
            "('pointsman up' lets commands on this machine do without)"
        )
    if not (token.isascii() and token.isprintable()):
        raise RefusedError(f"{TOKEN} holds characters that no token has")
    headers = {"Authorization": f"Bearer {token}", "X-Pointsman-Channel": "cli"}
    if text is not None:
        headers["Content-Type"] = "application/yaml"
    data = None if text is None else text.encode("utf-8", "surrogateescape")
    return urllib.request.Request(f"{base}/api/v1/{path}", data, headers, method=method)  # noqa: S310


def asked_control_plane(said: str | None) -> tuple[str, str]:
    """Address and token: as they are said, else those of the control plane that runs on this machine."""
    url = (said or os.environ.get(URL) or "").rstrip("/")
    token = os.environ.get(TOKEN, "").strip()
    if url and token:
        return url, token
    try:
        here = profile.read()
    except profile.UnusableError as error:
        raise RefusedError(str(error)) from None
    if here is None:
        return url or DEFAULT_URL, token
    if not token and url in {"", here.url}:
        token = here.token
    return url or here.url, token


def refusal(error: urllib.error.HTTPError) -> str:
    """What the API says against a request, line by line."""
    try:
        body = json.loads(error.read(MAX_ANSWER_BYTES))
        lines = [f"{detail['path']}: {detail['message']}" for detail in body["details"]]
        return "\n".join(lines or [body["message"]])
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        return f"HTTP {error.code}"
