"""`pointsman guard`: try guardrail policies, and look at what they found lately."""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from cli.arguments import Parser, Subparsers
from cli.documents import RefusedError, add_url, call, guarded
from cli.explain_table import printable

MAX_LINES: Final = 100_000
MAX_LINE: Final = 1 << 20
ACTIONS: Final = ("pass", "flag", "mask", "block")
DIALECTS: Final = ("chat", "completions", "responses", "messages", "gemini", "embeddings")
FILTERS: Final = ("policy", "rule", "tenant", "model", "pool", "stage", "action", "request_id")
"""Fields by which verdicts are chosen."""
PLACES: Final = ("tenants", "models", "pools")
MAX_ELSEWHERE: Final = 10
"""Policies for other traffic that are told of."""
ABOUT_TEST: Final = """What guardrail policies make of a text, or of every line of a corpus.

With `-f FILE` the policies are read from files and tried here; otherwise those of the control plane are, by
name with `--policy`, all of them without. Nothing is changed and nothing is kept."""
Try = Callable[[Mapping[str, Any]], Mapping[str, Any]]


def add_parser(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "guard", help="try guardrail policies, and see verdicts", description=__doc__
    )
    commands = parser.add_subparsers(parser_class=Parser, required=True, metavar="COMMAND")
    test = commands.add_parser("test", help="show every match in a text or a corpus", description=ABOUT_TEST)
    test.add_argument("text", nargs="?", help="the text; - is stdin")
    test.add_argument(
        "--body", metavar="FILE", help="a whole request or answer as JSON, instead of a text; - is stdin"
    )
    test.add_argument("--request", metavar="FILE", help="the request, as JSON, that an answer is to")
    test.add_argument(
        "--corpus",
        metavar="FILE",
        help='JSON lines: {"text" or "body": ..., "expect": "pass|flag|mask|block"}; '
        "exit code 1 if any differs",
    )
    test.add_argument("-f", "--filename", action="append", default=[], metavar="FILE", help="policies")
    test.add_argument("--policy", action="append", metavar="NAME", help="of the control plane")
    test.add_argument("--stage", choices=("request", "response", "stream"), default="request")
    test.add_argument("--dialect", choices=DIALECTS, default="chat", help="the API that carries a text")
    for name in ("tenant", "model", "pool"):
        test.add_argument(f"--{name}", default="", help=f"as if the request were of this {name}")
    test.add_argument("--json", action="store_true", help="print results as JSON, one a line")
    add_url(test)
    test.set_defaults(run=partial(guarded, "guard", run_test))
    verdicts = commands.add_parser(
        "verdicts", help="what guardrails found lately, the newest last", description=run_verdicts.__doc__
    )
    for name in FILTERS:
        verdicts.add_argument(
            f"--{name.replace('_', '-')}",
            metavar="ID" if name == "request_id" else "NAME",
            help=f"only of this {name.replace('_', ' ').replace(' id', '')}",
        )
    verdicts.add_argument("--limit", type=int, default=20, metavar="N", help="most that are shown (20)")
    verdicts.add_argument("--json", action="store_true", help="print them as JSON, one a line")
    add_url(verdicts)
    verdicts.set_defaults(run=partial(guarded, "guard", run_verdicts))


def run_test(arguments: argparse.Namespace) -> int:
    """Try; return 1 when a line of a corpus is not as it is expected."""
    if sum(each is not None for each in (arguments.text, arguments.body, arguments.corpus)) != 1:
        raise RefusedError("give a text, a body with --body, or a corpus with --corpus")
    if arguments.filename and arguments.policy:
        raise RefusedError("--policy names policies of the control plane; leave it out with -f")
    attempt = _here(arguments) if arguments.filename else _there(arguments)
    where: dict[str, Any] = {
        name: getattr(arguments, name) for name in ("stage", "dialect", "tenant", "model", "pool")
    }
    if arguments.request is not None:
        where["request"] = _object(arguments.request)
    if arguments.body is not None:
        _print(attempt({**where, "body": _object(arguments.body)}), as_json=arguments.json)
        return 0
    if arguments.text is not None:
        text = sys.stdin.read(MAX_LINE) if arguments.text == "-" else arguments.text
        _print(attempt({**where, "text": text}), as_json=arguments.json)
        return 0
    return _run_corpus(Path(arguments.corpus), attempt, where, as_json=arguments.json)


def run_verdicts(arguments: argparse.Namespace) -> int:
    """Where guardrails found something and of which kind, never what; as payload processors tell it."""
    wanted = {name: value for name in FILTERS if (value := getattr(arguments, name)) is not None}
    query = urlencode({"limit": arguments.limit, **wanted})
    found = call(arguments, "GET", f"guardrails/verdicts?{query}")
    if not found["configured"]:
        raise RefusedError("the control plane has no Valkey, through which processors tell of verdicts")
    for each in reversed(found["items"]):
        if arguments.json:
            print(json.dumps(each))
            continue
        at = datetime.fromtimestamp(each["at"], UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        whose = " ".join(
            f"{name} {each[name]}" for name in ("tenant", "model", "requestId") if each.get(name)
        )
        print(f"{at}  {each['stage']}  {_verdict(each)}  {whose}".rstrip())
    return 0


def _there(arguments: argparse.Namespace) -> Try:
    """Policies of the control plane."""

    def attempt(trial: Mapping[str, Any]) -> Mapping[str, Any]:
        said = {} if arguments.policy is None else {"policies": arguments.policy}
        found: Mapping[str, Any] = call(
            arguments, "POST", "guardrails/test", json.dumps({"trial": trial, **said})
        )
        return found

    return attempt


def _here(arguments: argparse.Namespace) -> Try:
    """Policies of files, compiled once."""
    import msgspec

    from dataplane.config.decode import decode_struct
    from dataplane.config.document_files import DocumentFiles
    from dataplane.errors import ConfigError
    from ipp.guardrails.policies import Policies
    from ipp.guardrails.trial import Trial, run_compiled
    from ipp.policies import read_policy

    problems: list[ConfigError] = []
    documents = [
        read
        for name in arguments.filename
        for document in DocumentFiles(name).read(problems)
        if (read := read_policy(document, problems)) is not None
    ]
    policies = Policies(documents, problems=problems)
    if problems:
        raise RefusedError("\n".join(map(str, problems)))

    def attempt(trial: Mapping[str, Any]) -> Mapping[str, Any]:
        mistakes: list[ConfigError] = []
        decoded = decode_struct(dict(trial), Trial, "", mistakes)
        if decoded is None or mistakes:
            raise RefusedError("\n".join(map(str, mistakes)))
        found: Mapping[str, Any] = msgspec.to_builtins(run_compiled(policies, documents, decoded))
        return found

    return attempt


def _object(name: str) -> dict[str, Any]:
    """The JSON object in a file, or on stdin."""
    if name == "-":
        text = sys.stdin.read(MAX_LINE)
    else:
        with Path(name).open(encoding="utf-8", errors="replace") as file:
            text = file.read(MAX_LINE)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"{name}: is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise RefusedError(f"{name}: must be an object")
    return found


def _run_corpus(path: Path, attempt: Try, where: Mapping[str, Any], *, as_json: bool) -> int:
    """Every line; then how many came out how, and which were not as expected."""
    counts: Counter[str] = Counter()
    rules: Counter[str] = Counter()
    elsewhere: dict[str, Mapping[str, Any]] | None = None
    wrong = 0
    for number, line in _lines(path):
        expected = line.pop("expect", None)
        if expected is not None and expected not in ACTIONS:
            raise RefusedError(f"{path}: line {number}: expect must be one of {', '.join(ACTIONS)}")
        try:
            found = attempt({**where, **line})
        except RefusedError as error:
            said = "\n".join(f"{path}: line {number}: {mistake}" for mistake in str(error).splitlines())
            raise RefusedError(said) from None
        counts[found["action"]] += 1
        rules.update({f"{each['policy']}/{each['rule']}" for each in found["verdicts"]})
        told = {each["policy"]: each for each in found.get("elsewhere", ())}
        elsewhere = told if elsewhere is None else {name: told[name] for name in elsewhere if name in told}
        is_wrong = expected is not None and expected != found["action"]
        wrong += is_wrong
        if as_json:
            print(json.dumps({"line": number, **found, **({"expect": expected} if expected else {})}))
        elif is_wrong:
            print(f"line {number}: expected {expected}, found {found['action']}")
            for each in found["verdicts"]:
                print(f"    {_verdict(each)}")
    if not as_json:
        total = sum(counts.values())
        print(f"{total} texts: " + ", ".join(f"{counts[action]} {action}" for action in ACTIONS))
        for rule, count in rules.most_common():
            print(f"    {rule}: {count}")
        _print_elsewhere(list((elsewhere or {}).values()))
        print(f"{wrong} not as expected")
    return 1 if wrong else 0


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if number > MAX_LINES:
                raise RefusedError(f"{path}: has more than {MAX_LINES} lines")
            if not line.strip():
                continue
            try:
                found = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise RefusedError(f"{path}: line {number}: is no JSON: {error}") from None
            if not isinstance(found, dict):
                raise RefusedError(f"{path}: line {number}: must be an object with a text or a body")
            yield number, found


def _print(found: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(found))
        return
    print(f"action: {found['action']}")
    if found.get("code"):
        print(f"code:   {found['code']}\nclient: {printable(found['message'])}")
    if found.get("text") is not None:
        print("text:   " + "\n".join(map(printable, found["text"].split("\n"))))
    if found.get("body") is not None:
        print(f"body:   {printable(json.dumps(found['body'], ensure_ascii=False))}")
    for each in found["verdicts"]:
        print(f"    {_verdict(each)}")
    for rule in found.get("notRun", ()):
        print(f"    {rule}: asks somebody else, not run here")
    _print_elsewhere(found.get("elsewhere", ()))


def _print_elsewhere(elsewhere: Sequence[Mapping[str, Any]]) -> None:
    """Policies that did not count, and why."""
    for each in elsewhere[:MAX_ELSEWHERE]:
        print(f"    {each['policy']}: {_elsewhere(each)}")
    if len(elsewhere) > MAX_ELSEWHERE:
        print(f"    and {len(elsewhere) - MAX_ELSEWHERE} more policies that are off or for other traffic")


def _elsewhere(each: Mapping[str, Any]) -> str:
    """Why a policy did not count."""
    if each.get("isOff"):
        return "is off"
    wanted = [f"{name} {', '.join(each[name])}" for name in PLACES if each.get(name)]
    flags = [f"--{name[:-1]}" for name in PLACES if each.get(name)]
    return f"is for other traffic ({'; '.join(wanted)}); say which with {', '.join(flags)}"


def _verdict(each: Mapping[str, Any]) -> str:
    start, end = each.get("start", 0), each.get("end", 0)
    place = each.get("path", "") + (f"[{start}:{end}]" if end > start else "")
    score = "" if each.get("score", 1) == 1 else f", score {each['score']:.2f}"
    where = f" at {place}" if place else ""
    return f"{each['policy']}/{each['rule']}: {each['kind']}{where}: {each['action']}{score}"
