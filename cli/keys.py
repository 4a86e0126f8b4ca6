"""`pointsman key`: the virtual keys of tenants, over the control plane's API.

A new key's text is the only thing on stdout, so that it can go where it belongs without being shown.
"""

import argparse
import json
import sys
import urllib.parse
from functools import partial
from typing import Any, Final

from cli.arguments import Parser, Subparsers
from cli.documents import add_url, call, guarded

VERSION: Final = "pointsman.dev/v1"
LIMITS: Final = {
    "requests_per_minute": "requestsPerMinute",
    "tokens_per_minute": "tokensPerMinute",
    "max_concurrent": "maxConcurrent",
}
"""Flags -> fields of `spec.limits`."""


def add_parser(subparsers: Subparsers) -> None:
    """Add the `key` subcommand."""
    parser = subparsers.add_parser("key", help="keys of tenants", description=__doc__)
    commands = parser.add_subparsers(parser_class=Parser, required=True, metavar="COMMAND")
    create = commands.add_parser("create", help="a new key, shown once")
    create.add_argument("name", help="what the key is called from now on")
    create.add_argument("--tenant", required=True, help="whose requests those with the key are")
    create.add_argument("--expires-at", metavar="MOMENT", help="such as 2027-01-31T00:00:00Z")
    create.add_argument("--objective", help="objective of requests that name none")
    create.add_argument(
        "--allow-model", action="append", metavar="PATTERN", help="a model, or llama-*; repeatable"
    )
    create.add_argument("--requests-per-minute", type=int, metavar="N")
    create.add_argument("--tokens-per-minute", type=int, metavar="N")
    create.add_argument("--max-concurrent", type=int, metavar="N")
    create.set_defaults(run=partial(guarded, "key create", run_create))
    rotate = commands.add_parser("rotate", help="another key in place of one, shown once")
    rotate.add_argument("name")
    rotate.add_argument("--grace", default="24h", help="how long the old key still holds (default: 24h)")
    rotate.set_defaults(run=partial(guarded, "key rotate", run_rotate))
    revoke = commands.add_parser("revoke", help="end a key for ever")
    revoke.add_argument("name")
    revoke.set_defaults(run=partial(guarded, "key revoke", run_revoke))
    for command in (create, rotate, revoke):
        add_url(command)


def run_create(arguments: argparse.Namespace) -> int:
    """Make a key and print it."""
    limits = {
        field: value for flag, field in LIMITS.items() if (value := getattr(arguments, flag)) is not None
    }
    said = {
        "tenant": arguments.tenant,
        "expiresAt": arguments.expires_at,
        "objective": arguments.objective,
        "allowedModels": arguments.allow_model,
        "limits": limits or None,
    }
    document = {
        "apiVersion": VERSION,
        "kind": "VirtualKey",
        "metadata": {"name": arguments.name},
        "spec": {field: value for field, value in said.items() if value is not None},
    }
    print(call(arguments, "POST", "virtualkeys", json.dumps(document))["status"]["key"])
    return 0


def run_rotate(arguments: argparse.Namespace) -> int:
    """Replace a key and print the new one."""
    rotated = act(arguments, "rotate", json.dumps({"grace": arguments.grace}))
    print(rotated["status"]["key"])
    previous = rotated["spec"].get("previous")
    ends = "has ended" if previous is None else f"holds until {previous['validUntil']}"
    sys.stderr.write(f"the old key {ends}\n")
    return 0


def run_revoke(arguments: argparse.Namespace) -> int:
    """End a key."""
    act(arguments, "revoke")
    print(f"key {arguments.name} is revoked")
    return 0


def act(arguments: argparse.Namespace, action: str, text: str | None = None) -> Any:
    """Do something with the key as it is now."""
    place = f"virtualkeys/{urllib.parse.quote(arguments.name, safe='')}"
    version = call(arguments, "GET", place)["metadata"]["resourceVersion"]
    return call(arguments, "POST", f"{place}/{action}", text, version)
