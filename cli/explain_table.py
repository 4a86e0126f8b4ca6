"""A decision as text: what `/debug/decisions` shows of it, laid out for a terminal.

Reads the page's JSON and nothing else, so that a decision of a running picker and one that is made offline
look alike. Text in it was chosen by clients and model servers, so what could move a cursor is replaced.
"""

import datetime
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from benchmarks.tables import number, render_table

MAX_NAMES = 6
"""Endpoints named per reason of a filter; the others are counted."""


def render(decision: Mapping[str, Any]) -> str:
    """The whole decision."""
    lines = [*head(decision), *before_profiles(decision)]
    for name, profile in decision.get("profiles", {}).items():
        role = profile_role(decision, name)
        lines += ["", f"profile {name}{f' ({role})' if role else ''}"]
        lines += [f"  {line}" if line else "" for line in profile_lines(profile, decision)]
    return "".join(f"{printable(line).rstrip()}\n" for line in lines)


def printable(line: str) -> str:
    """The line without characters that are no text."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)


def head(decision: Mapping[str, Any]) -> Iterator[str]:
    """Who asked for what, and what came of it."""
    at = datetime.datetime.fromtimestamp(decision["decidedAt"], datetime.UTC)
    yield (
        f"request {decision['requestId']}  model {decision['model'] or '-'}  "
        f"{at.isoformat(timespec='milliseconds').replace('+00:00', 'Z')}  "
        f"{decision['durationMs']:.3f} ms  configuration {decision['config'] or '-'}"
    )
    if decision["targetModel"] != decision["model"]:
        yield f"sent on as model {decision['targetModel']}"
    if decision["error"]:
        yield f"rejected at {decision['stage'] or 'an unknown stage'}: {decision['error']}"
    else:
        kind = f" as {decision['decision']}" if decision.get("decision") else ""
        yield f"sent{kind} to {', '.join(decision.get('destination', ())) or '-'}"
    if decision.get("leftOut"):
        yield f"left out: {', '.join(decision['leftOut'])}"
    response = decision["response"]
    if response["ending"] not in ("", "rejected"):
        ttft = "" if response["ttftMs"] is None else f", first byte after {response['ttftMs']:.1f} ms"
        yield f"response {response['status']}, {response['ending']}{ttft}"
    if not decision.get("traced") and decision.get("stage") != "parse":  # which knows all there is
        yield "not traced: reasons, figures and ages are not known (see --explain-sampling)"


def before_profiles(decision: Mapping[str, Any]) -> Iterator[str]:
    """Pool, prefix matches, screeners and admitters."""
    if decision.get("incomplete"):
        yield f"the trace is incomplete: {decision['incomplete']}"
    pool = decision.get("pool")
    if pool is not None:
        away = [f"{pool[word]} {word}" for word in ("gone", "ejected") if pool[word]]
        suffix = f" ({', '.join(away)})" if away else ""
        yield f"candidates {pool['candidates']} of {pool['endpoints']} endpoints{suffix}"
    for match in decision.get("prefixMatches", ()):
        yield (
            f"prompt {match['totalBlocks']} blocks of {match['blockSizeTokens']} tokens ({match['producer']})"
        )
    for verdict in decision.get("verdicts", ()):
        said = f": {verdict['reason']}" if verdict["reason"] else ""
        yield f"{verdict['stage']} {verdict['plugin']}  {verdict['before']} -> {verdict['after']}{said}"
        yield from removed_lines(verdict["removed"])


def profile_role(decision: Mapping[str, Any], name: str) -> str:
    """What a profile's choice is used for."""
    if name == decision.get("primaryProfile"):
        return "destination"
    return "prefill" if name == decision.get("prefillProfile") else ""


def profile_lines(profile: Mapping[str, Any], decision: Mapping[str, Any]) -> Iterator[str]:
    """Filters, candidates and the winner of one profile."""
    for step in profile["filters"]:
        yield f"filter {step['name']}  {step['before']} -> {step['after']}"
        yield from removed_lines(step.get("removed", ()), step.get("removedNotListed", 0))
    if profile.get("error"):
        yield f"found nobody: {profile['error']}"
    candidates = profile.get("candidates")
    if not candidates:
        return
    yield ""
    producers = [match["producer"] for match in decision.get("prefixMatches", ())]
    table = candidate_table(candidates, set(profile["picked"]), producers)
    yield from table.splitlines()
    hidden = profile["candidatesTotal"] - len(candidates)
    if hidden:
        yield f"and {hidden} more with no higher total"
    yield ""
    yield from winner_lines(profile)


def removed_lines(removed: Sequence[Mapping[str, Any]], not_listed: int = 0) -> Iterator[str]:
    """Endpoints that were removed, those of one reason together."""
    by_reason = sorted(removed, key=lambda row: row["reason"])
    for reason, rows in groupby(by_reason, key=lambda row: row["reason"]):
        names = [f"{row['name']} ({row['endpoint']})" for row in rows]
        more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        yield f"  removed {', '.join(names[:MAX_NAMES])}{more}{f': {reason}' if reason else ''}"
    if not_listed:
        yield f"  removed {not_listed} more that are not listed"


def candidate_table(
    candidates: Sequence[Mapping[str, Any]], picked: set[str], producers: Sequence[str]
) -> str:
    """One line per candidate; a score is shown as score x weight."""
    scorers = list(candidates[0]["scores"])
    is_traced = "waiting" in candidates[0]
    header = ["endpoint", "total", *scorers]
    if is_traced:
        header += ["age ms", "waiting", "unseen", "running", "kv", "in flight"]
        header += ["held"] if len(producers) == 1 else [f"held ({producer})" for producer in producers]
    rows = []
    for row in candidates:
        scores = [row["scores"][name] for name in scorers]
        cells = [f"{'*' if row['endpoint'] in picked else ' '} {row['endpoint']}", f"{row['total']:.4f}"]
        cells += [f"{score['score']:.3f} x {score['weight']:g}" for score in scores]
        if is_traced:
            age = "never" if row["dataAgeMs"] is None else number(row["dataAgeMs"], 0)
            cells += [age if row["fresh"] else f"{age} stale"]
            cells += [f"{row[name]:g}" for name in ("waiting", "unseen", "running")]
            cells += [f"{row['kvUsage']:.0%}", f"{row['inflight']:g}"]
            cells += [f"{row['matchedBlocks'].get(producer, 0):g}" for producer in producers]
        rows.append(cells)
    return render_table(header, rows)


def winner_lines(profile: Mapping[str, Any]) -> Iterator[str]:
    """Who won, by how much, against whom."""
    winner, runner_up = profile.get("winner"), profile.get("runnerUp")
    if winner is None:
        yield f"picked {', '.join(profile['picked'])}"
        return
    ties = f", {profile['ties']} tie at this total" if profile["ties"] > 1 else ""
    name = f"{winner['name']} ({winner['endpoint']})"
    yield f"picked by {profile['picker']}: {name} with {winner['total']:g}{ties}"
    if len(profile["picked"]) > 1:
        yield f"then {', '.join(profile['picked'][1:])}"
    if runner_up is not None:
        yield (
            f"runner-up: {runner_up['name']} ({runner_up['endpoint']}) with {runner_up['total']:g}, "
            f"margin {runner_up['margin']:g}"
        )
