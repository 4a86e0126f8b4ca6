"""`pointsman rollout`: bring a revision of a configuration to its workers, watch it, stop it, go back."""

import argparse
import json
import urllib.parse
from functools import partial
from typing import Any, Final

from cli.arguments import Parser, Subparsers
from cli.documents import RefusedError, add_url, call, guarded, known_plural, shown

PICKERS: Final = "endpointpickerconfigs"
COUNTED: Final = {"requests": "requests", "errors": "failed", "blocked": "blocked by guardrails"}
ROLLED_OUT: Final = (PICKERS, "payloadprocessorconfigs", "guardrailpolicies")


def add_parser(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "rollout", help="bring a configuration to its workers, step by step", description=__doc__
    )
    commands = parser.add_subparsers(parser_class=Parser, required=True, metavar="COMMAND")
    start = commands.add_parser("start", help="publish a revision, to everybody or to a canary first")
    start.add_argument("--revision", type=int, metavar="N", help="default: the newest")
    start.add_argument("--canary", metavar="SIZE", help="10%% of the workers, or 2 of them")
    start.add_argument("--max-error-share", type=float, metavar="X", help="stop above it; 0.05 is 5%%")
    start.add_argument(
        "--max-blocked-share", type=float, metavar="X", help="stop when guardrails end more; 0.2 is 20%%"
    )
    start.add_argument("--min-requests", type=int, metavar="N", help="judge errors from so many requests on")
    start.add_argument("--comment", default="", help="why; kept with the rollout")
    start.add_argument("--dry-run", action="store_true", help="only show what would change, and for whom")
    status = commands.add_parser("status", help="how far it is, worker by worker")
    promote = commands.add_parser("promote", help="the canary is good: on to everybody")
    halt = commands.add_parser("halt", help="nobody else gets it")
    halt.add_argument("--reason", default="", help="kept with the rollout")
    back = commands.add_parser("back", help="a new revision with an older content, for everybody")
    back.add_argument("--revision", type=int, metavar="N", help="default: the one that was active before")
    runs = {start: run_start, status: run_status, promote: run_promote, halt: run_halt, back: run_back}
    for command, run in runs.items():
        command.add_argument(
            "name",
            help="the EndpointPickerConfig; or PayloadProcessorConfig/NAME or GuardrailPolicy/NAME, the kind "
            "as for 'get'",
        )
        add_url(command)
        command.set_defaults(run=partial(guarded, "rollout", run))


def run_start(arguments: argparse.Namespace) -> int:
    """Publish, or show what publishing would do."""
    if arguments.dry_run:
        return _show_plan(arguments)
    body: dict[str, Any] = {"comment": arguments.comment}
    if arguments.revision is not None:
        body["revision"] = arguments.revision
    if arguments.canary is not None:
        body["canary"] = arguments.canary
    shares = {"maxErrorShare": arguments.max_error_share, "maxBlockedShare": arguments.max_blocked_share}
    guard = {name: share for name, share in shares.items() if share is not None}
    if guard:
        body["guard"] = guard
        if arguments.min_requests is not None:
            body["guard"]["minRequests"] = arguments.min_requests
    return _order(arguments, "publish", body)


def run_promote(arguments: argparse.Namespace) -> int:
    """From the canary to everybody."""
    return _order(arguments, "promote", {})


def run_halt(arguments: argparse.Namespace) -> int:
    """Stop."""
    return _order(arguments, "halt", {"reason": arguments.reason})


def run_back(arguments: argparse.Namespace) -> int:
    """Go back."""
    return _order(
        arguments, "rollback", {} if arguments.revision is None else {"revision": arguments.revision}
    )


def run_status(arguments: argparse.Namespace) -> int:
    """Print the newest rollout."""
    found = _ask(arguments, "GET", "rollout")
    _print(found)
    print(f"active revision: {_or_none(found['active'])}")
    print(f"{found['workersApplied']} of {found['workersPresent']} workers run it")
    for worker in found["workers"]:
        gone = "" if worker["present"] else ", gone"
        runs = "nothing yet" if worker["applied"] is None else f"revision {worker['applied']}"
        print(f"  {worker['worker']} ({worker['pool']}): {worker['outcome']}, runs {runs}{gone}")
        if worker["requests"]:
            counts = [f"{worker[name]} {said}" for name, said in COUNTED.items() if worker[name]]
            print(f"    {', '.join(counts)} since then")
        for problem in worker["problems"]:
            place = f"{problem['path']}: " if problem["path"] else ""
            print(f"    {place}{problem['message']}")
    return 0


def _show_plan(arguments: argparse.Namespace) -> int:
    asked = {"revision": arguments.revision, "canary": arguments.canary}
    query = urllib.parse.urlencode({name: value for name, value in asked.items() if value is not None})
    plan = _ask(arguments, "GET", f"plan?{query}")
    print(f"revision {plan['revision']} for {_for_whom(plan)}; active: {_or_none(plan['active'])}")
    for change in plan["changes"]:
        print(f"    {change['path']}: {shown(change['before'])} -> {shown(change['after'])}")
    for field, each in (plan["affects"] or {}).items():
        known = ", ".join(each["known"]) or "none that is known"
        more = f" and {each['more']} more" if each["more"] else ""
        print(f"  {field} {', '.join(each['patterns']) or 'none'}: {known}{more}")
    for warning in plan["warnings"]:
        print(f"  warning: {warning}")
    for worker in plan["workers"]:
        print(f"  {worker['worker']} ({worker['pool']}): {'first' if worker['first'] else 'after promotion'}")
    return 0


def _for_whom(plan: dict[str, Any]) -> str:
    """Pools, the payload processor of the document's own name, or all of them."""
    if plan["kind"] == "PayloadProcessorConfig":
        return f"the payload processor {plan['document']}"
    if plan["kind"] == "GuardrailPolicy":
        return "all payload processors"
    return f"the pools {', '.join(plan['pools']) or 'none'}"


def _or_none(number: int | None) -> str:
    return "none yet" if number is None else str(number)


def _order(arguments: argparse.Namespace, order: str, body: dict[str, Any]) -> int:
    _print(_ask(arguments, "POST", order, json.dumps(body)))
    return 0


def _ask(arguments: argparse.Namespace, method: str, rest: str, body: str | None = None) -> dict[str, Any]:
    try:
        found: dict[str, Any] = call(arguments, method, _address(arguments, rest), body)
    except RefusedError as error:
        if "/" in arguments.name or not str(error).startswith("there is no"):
            raise
        others = f"PayloadProcessorConfig/{arguments.name} or GuardrailPolicy/{arguments.name}"
        raise RefusedError(f"{error}; if it is of another kind, say {others}") from None
    return found


def _print(rollout: dict[str, Any]) -> None:
    canary = f", canary {rollout['canary']}" if rollout["canary"] else ""
    reason = f": {rollout['reason']}" if rollout["reason"] else ""
    print(f"rollout {rollout['id']} of revision {rollout['revision']}{canary} is {rollout['stage']}{reason}")


def _address(arguments: argparse.Namespace, rest: str) -> str:
    kind, slash, name = arguments.name.rpartition("/")
    plural = known_plural(kind) if slash else PICKERS
    if plural not in ROLLED_OUT:
        raise RefusedError(f"{kind} is not rolled out; {' and '.join(ROLLED_OUT)} are")
    return f"{plural}/{urllib.parse.quote(name, safe='')}/{rest}"
