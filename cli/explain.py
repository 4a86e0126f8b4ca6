"""`pointsman explain`: why a request goes, or went, where it does.

Offline it decides a request itself, on files. With `--from` it reads the decision of a running picker from
its debug pages, or saves the picker's endpoints for a decision offline.
"""

import argparse
import http.client
import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Final

from cli.arguments import Subparsers
from dataplane.errors import ConfigError

DESCRIPTION = """Show how a request is decided: candidates, what each filter removed and why, every score, the
winner and the runner-up.

  pointsman explain REQUEST.json --config FILE --endpoints FILE     decide it here, on files
  pointsman explain REQUEST_ID --from http://PICKER:9090            show what a running picker decided
  pointsman explain --from http://PICKER:9090 --save-snapshot FILE  save its endpoints and their figures"""

FAILED: Final = 1
ASKED_WRONGLY: Final = 2
TIMEOUT_S: Final = 10.0
MAX_PAGE_BYTES: Final = 64 << 20
MAX_ERROR_BYTES: Final = 4096
MAX_ENDPOINTS: Final = 20_000

OFFLINE_ONLY: Final = (
    "config", "endpoints", "snapshot", "objects_file", "path", "header", "subset", "warm", "seed",
)  # fmt: skip


class NoAnswerError(Exception):
    """The picker cannot be reached, or has no answer; says which page and why."""


def add_parser(subparsers: Subparsers) -> None:
    """Add the parser of `pointsman explain`."""
    parser = subparsers.add_parser(
        "explain", help="show why a request goes where it does", description=DESCRIPTION
    )
    parser.add_argument(
        "what", nargs="?", metavar="REQUEST", help="file with the body; a request id with --from"
    )
    parser.add_argument("--config", metavar="FILE", help="EndpointPickerConfig; without it the built-in one")
    parser.add_argument("--endpoints", metavar="FILE", help="endpoints file, as file-discovery reads it")
    parser.add_argument(
        "--snapshot", metavar="FILE", help="figures of the endpoints, as /debug/endpoints shows them"
    )
    parser.add_argument("--objects-file", metavar="FILE", help="file or folder with objectives and rewrites")
    parser.add_argument("--path", help="path of the request; without it what the body looks like")
    parser.add_argument(
        "--header", action="append", metavar="'NAME: VALUE'", help="header of the request; repeatable"
    )
    parser.add_argument("--subset", metavar="IP:PORT,...", help="endpoints that the proxy allows")
    parser.add_argument(
        "--warm", action="append", metavar="IP:PORT",
        help="endpoint that has served the same request before; repeatable",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, help="which of equals is drawn (default 0)")
    parser.add_argument(
        "--allow-experimental-plugins", action="store_true", help="accept plugins of Alpha stability"
    )
    parser.add_argument("--from", dest="source", metavar="URL", help="metrics address of a running picker")
    parser.add_argument("--save-snapshot", metavar="FILE", help="save the endpoints of --from")
    parser.add_argument("--json", action="store_true", help="print JSON as the debug page shows it")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Explain; return 0, 1 when the picker has no answer, 2 when asked wrongly."""
    try:
        check(args)
        if args.save_snapshot:
            return save_snapshot(args.source, args.save_snapshot)
        return show_live(args) if args.source else show_offline(args)
    except ConfigError as error:
        for one in getattr(error, "errors", [error]):
            sys.stderr.write(f"pointsman explain: error: {one}\n")
        return ASKED_WRONGLY
    except NoAnswerError as error:
        sys.stderr.write(f"pointsman explain: {error}\n")
        return FAILED


def check(args: argparse.Namespace) -> None:
    """``ConfigError`` for arguments that do not go together."""
    if args.source:
        given = next((name for name in OFFLINE_ONLY if getattr(args, name) is not None), None)
        if given is not None:
            raise ConfigError("excludes --from", path=f"--{given.replace('_', '-')}")
        if not is_address(args.source):
            raise ConfigError(f"{args.source!r} is not an address; write http://HOST:9090", path="--from")
        if bool(args.what) == bool(args.save_snapshot):
            raise ConfigError("give either a request id or --save-snapshot")
    elif args.save_snapshot:
        raise ConfigError("needs the picker to ask; add --from http://HOST:9090", path="--save-snapshot")
    elif not args.what:
        raise ConfigError("name the file with the request's body, or a picker with --from")
    elif not (args.endpoints or args.snapshot):
        raise ConfigError("nothing says which endpoints there are; give --endpoints or --snapshot")


def is_address(text: str) -> bool:
    """Whether pages can be asked for at this URL."""
    try:
        parts = urllib.parse.urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def show_offline(args: argparse.Namespace) -> int:
    """Decide the request on files and show it."""
    from epp.explain.offline import Question, explain  # the help needs none of what deciding needs
    from epp.graph.registry import plugin_registry

    question = Question(
        request=args.what,
        config=args.config or "",
        endpoints=args.endpoints or "",
        snapshot=args.snapshot or "",
        objects=args.objects_file or "",
        path=args.path or "",
        headers=tuple(map(header, args.header or ())),
        subset=args.subset or "",
        warm=tuple(args.warm or ()),
        seed=args.seed or 0,
        allow_experimental=args.allow_experimental_plugins,
    )
    answer = explain(question, plugin_registry(external=True).registry)
    for warning in answer.warnings:
        sys.stderr.write(f"pointsman explain: warning: {warning}\n")
    show([answer.decision], as_json=args.json)
    return 0


def header(text: str) -> tuple[str, str]:
    """Name and value of `Name: value`."""
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise ConfigError(f"{text!r} is not written as 'Name: value'", path="--header")
    return name.strip(), value.strip()


def show_live(args: argparse.Namespace) -> int:
    """Show every decision that a picker keeps of a request."""
    page = fetch(args.source, f"/debug/decisions/{urllib.parse.quote(args.what, safe='')}")
    try:
        show(page["decisions"], as_json=args.json)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise NoAnswerError(
            f"{args.source}: shows decisions in a form that is not known here ({error!r}); see --json"
        ) from error
    return 0


def show(decisions: list[Any], *, as_json: bool) -> None:
    """Print decisions, newest first."""
    if as_json:
        sys.stdout.write(json.dumps({"decisions": decisions}, indent=2) + "\n")
        return
    from cli.explain_table import render

    sys.stdout.write("\n".join(map(render, decisions)))


def save_snapshot(source: str, file: str) -> int:
    """Write what a picker knows of its endpoints to a file; one that is there is replaced as a whole."""
    page = fetch(source, f"/debug/endpoints?limit={MAX_ENDPOINTS}")
    new = f"{file}.{os.getpid()}.new"
    try:
        with open(new, "w", encoding="utf-8") as out:
            json.dump(page, out, indent=2)
        os.replace(new, file)
    except OSError as error:
        raise ConfigError(f"cannot be written ({error.strerror})", path=file) from error
    sys.stdout.write(f"{file}: {len(page.get('endpoints', []))} endpoints\n")
    return 0


def fetch(source: str, path: str) -> dict[str, Any]:
    """A page of a picker. ``NoAnswerError`` with the reason when there is none."""
    url = f"{source.rstrip('/')}{path}"
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:  # noqa: S310 - http or https, see check
            text = answer.read(MAX_PAGE_BYTES + 1)
    except urllib.error.HTTPError as error:
        raise NoAnswerError(f"{url}: {reason(error) or f'status {error.code}'}") from None
    except http.client.HTTPException as error:
        raise NoAnswerError(f"{url}: no answer in HTTP ({error!r:.200})") from None
    except (OSError, ValueError) as error:
        raise NoAnswerError(f"{url}: {getattr(error, 'reason', error)}") from None
    if len(text) > MAX_PAGE_BYTES:
        raise NoAnswerError(f"{url}: the answer is larger than {MAX_PAGE_BYTES} bytes")
    try:
        page = json.loads(text)
    except (ValueError, RecursionError):
        page = None
    if not isinstance(page, dict):
        raise NoAnswerError(f"{url}: is not the page of a picker")
    return page


def reason(error: urllib.error.HTTPError) -> str:
    """What an error page says."""
    try:
        with error:
            return str(json.loads(error.read(MAX_ERROR_BYTES))["error"])
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, RecursionError):
        return ""
