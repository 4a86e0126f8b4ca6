"""`pointsman bench`: measurements, each with a table on stdout, progress on stderr, all figures in a file.

A measurement starts the real processes on loopback and stops them whatever happens. The exit code is 0 when
it was done (with `--check`: and everything is as promised), 1 when not, 2 for wrong arguments. Without
`--check` figures are held against what is promised only if the machine was otherwise quiet.
"""

import argparse
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import msgspec

from benchmarks import (
    explain,
    extproc,
    extproc_report,
    ipp,
    routing,
    routing_report,
    schedule,
    scrape,
    study,
    xds,
)
from benchmarks.children import BenchError
from benchmarks.cpu import OtherProcesses
from benchmarks.envoy_config import Mode
from benchmarks.explain import ExplainOptions
from benchmarks.extproc_plan import ExtProcOptions, Server
from benchmarks.ipp import IppOptions
from benchmarks.routing import Policy, RoutingOptions
from benchmarks.schedule import ScheduleOptions
from benchmarks.scrape import ScrapeOptions
from benchmarks.study import StudyOptions
from benchmarks.xds import XdsOptions
from cli.arguments import Parser, Subparsers
from cli.bench_flags import above, at_least, duration, listed, numbers, rate, writable_file

FAILED = 1
INTERRUPTED = 130

QUIET_CORES = 0.2
"""CPU other processes may use before figures are held against the promised ones only when asked to."""


def add_parser(subparsers: Subparsers) -> None:
    """Add the `bench` subcommand with a subcommand per measurement."""
    parser = subparsers.add_parser("bench", help="measure the gateway", description=__doc__)
    measurements = parser.add_subparsers(parser_class=Parser, required=True, metavar="MEASUREMENT")
    add_extproc(measurements)
    add_routing(measurements)
    add_schedule(measurements)
    add_explain(measurements)
    add_ipp(measurements)
    add_scrape(measurements)
    add_study(measurements)
    add_xds(measurements)


def add_extproc(measurements: Subparsers) -> None:
    """Add `bench extproc`."""
    parser = measurements.add_parser(
        "extproc",
        help="CPU per request: Envoy alone, with the picker, with a minimal grpc.aio server",
        description="Compare Envoy alone, Envoy with the picker and Envoy with a minimal grpc.aio server.",
    )
    flag = flags_of(parser, ExtProcOptions())
    flag("connections", at_least(1), "keep-alive connections of the load generator")
    flag("body-bytes", at_least(300), "size of a request body")
    flag("paced-rate", at_least(0.0), "requests per second of the scenario with equal load; 0 skips it")
    flag("large-body-bytes", at_least(0), "size of the bodies in the large-body scenario; 0 skips it")
    flag("sse-chunks", at_least(0), "chunks per stream in the streaming scenario; 0 skips it")
    flag("sse-interval-ms", at_least(0.0), "time between two chunks")
    flag("sse-connections", at_least(1), "concurrent streams")
    flag("seconds", above(0.0), "length of a measured window; 5 or more for exact CPU times")
    flag("warmup-s", at_least(0.0), "load before each window")
    flag("repeat", at_least(1), "rounds; every round measures every variant")
    flag("endpoints", at_least(1), "endpoints the upstream listens as")
    flag("scrape-interval", duration, "how often the picker reads the endpoints' metrics")
    flag("servers", listed(Server), f"what to compare, comma-separated: {', '.join(Server)}")
    flag("quiet", at_least(0.0), "repeat windows in which other processes use more cores than this; 0: never")
    flag("modes", listed(Mode), "what Envoy sends to the server: full-duplex, request-only")
    flag("seed", int, "same seed, same requests")
    parser.add_argument("--baseline-uvloop", action="store_true", help="run the grpc.aio server on uvloop")
    parser.add_argument("--pin", action="store_true", help="Envoy on the first CPU, its server on the second")
    add_output(parser)
    parser.set_defaults(run=guarded(run_extproc))


def run_extproc(arguments: argparse.Namespace) -> int:
    """Measure, print the table, write the figures."""
    result = extproc.run(options_of(ExtProcOptions, arguments))
    return told(
        arguments,
        "extproc",
        result,
        extproc_report.others_cores(result),
        extproc_report.complaints(result, measured_only=not arguments.check),
        lambda judged: extproc_report.render(result, judged=judged),
        rows=extproc_report.rows(result),
        ratios=extproc_report.ratios(result),
    )


def add_routing(measurements: Subparsers) -> None:
    """Add `bench routing`."""
    parser = measurements.add_parser(
        "routing",
        help="TTFT, hit ratio and throughput of a simulated fleet under the picker and without it",
        description="Compare the picker with round robin and random on a shared-prefix workload.",
    )
    flag = flags_of(parser, RoutingOptions())
    flag("replicas", at_least(1), "model servers")
    parser.add_argument(
        "--rate", type=rate, default=0.0, metavar="X", help="requests per second, or auto (default: auto)"
    )
    flag("load", above(0.0), "rate auto: multiple of what the fleet can do without any cache hit")
    flag("seconds", above(0.0), "length of the measured time")
    flag("warmup-s", at_least(0.0), "load before it, which fills the caches")
    flag("drain-s", at_least(0.0), "how long answers may take after the last arrival")
    flag("groups", at_least(1), "different system prompts")
    flag("system-tokens", at_least(1), "length of a system prompt")
    flag("question-tokens", at_least(8), "length of a question; every question is new")
    flag("output-tokens", at_least(1), "length of an answer")
    flag("replica-share", above(0.0), "share of all system prompts that one replica's KV cache has room for")
    flag("profile", str, "latency profile of the model servers")
    flag("time-scale", above(0.0), "factor on the model servers' times; the derived rate follows it")
    flag("policies", listed(Policy), f"what to compare, comma-separated: {', '.join(Policy)}")
    flag("seed", int, "same seed, same requests at the same moments")
    add_output(parser)
    parser.set_defaults(run=guarded(run_routing))


def run_routing(arguments: argparse.Namespace) -> int:
    """Measure, print the table, write the figures."""
    result, others_cores = measured(arguments, RoutingOptions, routing.run)
    return told(
        arguments,
        "routing",
        result,
        others_cores,
        routing_report.complaints(result),
        lambda judged: routing_report.render(result, judged=judged),
        leads=routing_report.leads(result),
    )


def add_schedule(measurements: Subparsers) -> None:
    """Add `bench schedule`."""
    parser = measurements.add_parser(
        "schedule",
        help="time the picker takes to decide one request",
        description="Measure the picker's decisions in this process, without any network.",
    )
    flag = flags_of(parser, ScheduleOptions())
    flag("endpoints", numbers(at_least(1)), "sizes of the pool, comma-separated")
    flag("prompt-tokens", numbers(at_least(16)), "lengths of the prompt, comma-separated")
    flag("samples", at_least(1), "decisions per combination")
    flag("seed", int, "same seed, same requests and metrics")
    add_output(parser)
    parser.set_defaults(run=guarded(run_schedule))


def run_schedule(arguments: argparse.Namespace) -> int:
    """Measure, print the table, write the figures."""
    return judged_run(arguments, "schedule", schedule, ScheduleOptions)


def judged_run(arguments: argparse.Namespace, name: str, benchmark: Any, options: type[Any]) -> int:
    """Measure, print the table, write the figures; the exit code says whether all is as promised."""
    result, others_cores = measured(arguments, options, benchmark.run)

    def text(judged: bool) -> str:
        return str(benchmark.render(result, judged=judged))

    return told(arguments, name, result, others_cores, benchmark.complaints(result), text)


def add_explain(measurements: Subparsers) -> None:
    """Add `bench explain`."""
    parser = measurements.add_parser(
        "explain",
        help="what tracing a share of the decisions costs all of them",
        description="Measure the picker's decisions with and without traces, without any network.",
    )
    flag = flags_of(parser, ExplainOptions())
    flag("endpoints", numbers(at_least(1)), "sizes of the pool, comma-separated")
    flag("prompt-tokens", numbers(at_least(16)), "lengths of the prompt, comma-separated")
    flag("share", above(0.0), "share of the decisions that is traced, at most 1")
    flag("rounds", at_least(1), "batches of each kind per combination")
    flag("seed", int, "same seed, same requests and metrics")
    add_output(parser)
    parser.set_defaults(run=guarded(run_explain))


def run_explain(arguments: argparse.Namespace) -> int:
    """Measure, print the table, write the figures."""
    if arguments.share > 1:
        raise BenchError(f"--share {arguments.share:g} is more than 1")
    return judged_run(arguments, "explain", explain, ExplainOptions)


def add_ipp(measurements: Subparsers) -> None:
    """Add `bench ipp`."""
    parser = measurements.add_parser(
        "ipp",
        help="what a payload processor and its guardrails cost",
        description="Compare the processor with a server that only passes on, and measure its guardrails.",
    )
    flag = flags_of(parser, IppOptions())
    flag("body-bytes", at_least(256), "size of requests that no policy holds for")
    flag("prompt-bytes", at_least(256), "size of the prompt that the policy is measured on")
    flag("messages", at_least(1), "over how many messages it is spread as well")
    flag("keywords", at_least(1), "words of the policy")
    flag("patterns", at_least(1), "patterns of the policy")
    flag("events", at_least(10), "events of the stream")
    flag("rounds", at_least(4), "batches of each kind, in this process")
    flag("repeat", at_least(0), "rounds through Envoy; every round measures every server; 0 leaves them out")
    flag("seconds", above(0.0), "length of a window of theirs")
    flag("warmup-s", at_least(0.0), "load before each window")
    flag("connections", at_least(1), "keep-alive connections of the load generator")
    flag("seed", int, "same seed, same texts")
    add_output(parser)
    parser.set_defaults(run=guarded(run_ipp))


def run_ipp(arguments: argparse.Namespace) -> int:
    """Measure, print the table, write the figures."""
    return judged_run(arguments, "ipp", ipp, IppOptions)


def add_scrape(measurements: Subparsers) -> None:
    """Add `bench scrape`."""
    parser = measurements.add_parser(
        "scrape",
        help="CPU a picker uses for reading the metrics of many endpoints",
        description="Measure an idle picker that scrapes endpoints served by another process.",
    )
    flag = flags_of(parser, ScrapeOptions())
    flag("endpoints", at_least(1), "endpoints to scrape")
    flag("interval", duration, "time between two scrapes of an endpoint")
    flag("seconds", above(0.0), "length of the measured window")
    flag("warmup-s", at_least(0.0), "time before it, in which connections open")
    add_output(parser)
    parser.set_defaults(run=guarded(run_scrape))


def run_scrape(arguments: argparse.Namespace) -> int:
    """Measure, print the table, write the figures."""
    result, others_cores = measured(arguments, ScrapeOptions, scrape.run)
    text = scrape.render(result)
    return told(arguments, "scrape", result, others_cores, scrape.complaints(result), lambda _: text)


def add_xds(measurements: Subparsers) -> None:
    """Add `bench xds`."""
    parser = measurements.add_parser(
        "xds",
        help="how soon what is applied is in use, and what telling everybody costs",
        description="Measure a control plane with a real Envoy and a subscription per pool.",
    )
    flag = flags_of(parser, XdsOptions())
    flag("pools", at_least(1), "pools, each with a route, two clusters and a picker that subscribes")
    flag("endpoints", at_least(1), "endpoints of all pools together")
    flag("repeat", at_least(1), "rounds; the slowest one counts")
    add_output(parser)
    parser.set_defaults(run=guarded(run_xds))


def run_xds(arguments: argparse.Namespace) -> int:
    """Measure, print the table, write the figures."""
    result, others_cores = measured(arguments, XdsOptions, xds.run)
    text = xds.render(result)
    return told(arguments, "xds", result, others_cores, xds.complaints(result), lambda _: text)


def add_study(measurements: Subparsers) -> None:
    """Add `bench study`."""
    parser = measurements.add_parser(
        "study",
        help="the traffic of llm-d's CPU study, next to its published figures",
        description="Replay the traffic of llm-d's CPU study through Envoy and the picker.",
    )
    flag = flags_of(parser, StudyOptions())
    flag("connections", at_least(1), "keep-alive connections of the load generator")
    flag("stream-connections", at_least(1), "concurrent streams")
    flag("answer-tokens", at_least(1), "chunks of a streamed answer")
    flag("token-interval-ms", at_least(0.0), "time between two chunks")
    flag("seconds", above(0.0), "length of a measured window; longer than one streamed answer takes")
    flag("warmup-s", at_least(0.0), "load before each window")
    flag("scrape-interval", duration, "how often the picker reads the endpoints' metrics")
    flag("seed", int, "same seed, same requests")
    add_output(parser)
    parser.set_defaults(run=guarded(run_study))


def run_study(arguments: argparse.Namespace) -> int:
    """Measure, print the table, write the figures."""
    result = study.run(options_of(StudyOptions, arguments))
    others_cores = max(finding.measurement.foreign_cores for finding in result.findings)
    text = study.render(result)
    return told(arguments, "study", result, others_cores, study.complaints(result), lambda _: text)


def add_output(parser: Parser) -> None:
    """Add the flags every measurement has."""
    parser.add_argument(
        "--json", type=writable_file, metavar="FILE", help="write all figures, versions and the machine here"
    )
    parser.add_argument("--check", action="store_true", help="exit 1 when a promised figure is missed")


def flags_of(parser: Parser, defaults: msgspec.Struct) -> Callable[[str, Callable[[str], Any], str], None]:
    """Return a function that adds a flag whose default is the field of `defaults` with the same name."""

    def add(name: str, kind: Callable[[str], Any], text: str) -> None:
        default = getattr(defaults, name.replace("-", "_"))
        shown = ",".join(map(str, default)) if isinstance(default, tuple) else default
        parser.add_argument(
            f"--{name}", type=kind, default=default, metavar="X", help=f"{text} (default: {shown})"
        )

    return add


Options = TypeVar("Options", bound=msgspec.Struct)
Result = TypeVar("Result")


def options_of(kind: type[Options], arguments: argparse.Namespace) -> Options:
    """The options struct filled from the flags of the same names."""
    return kind(**{name: getattr(arguments, name) for name in kind.__struct_fields__})


def measured(
    arguments: argparse.Namespace, kind: type[Options], run: Callable[[Options], Result]
) -> tuple[Result, float]:
    """What a benchmark finds with the options of the flags, and the cores that others used meanwhile."""
    others = OtherProcesses()
    result = run(options_of(kind, arguments))
    return result, others.cores()


def told(
    arguments: argparse.Namespace,
    name: str,
    result: Any,
    others_cores: float,
    complaints: list[str],
    text: Callable[[bool], str],
    **figures: Any,
) -> int:
    """Print the table, which depends on whether it is judged, write the figures; returns the exit code."""
    judged = is_judged(arguments, others_cores)
    print(text(judged))
    write_json(arguments.json, benchmark=name, result=result, **figures, complaints=complaints)
    return verdict(complaints, others_cores, judged=judged, checked=arguments.check)


def write_json(path: Path | None, **content: Any) -> None:
    """Write the figures, if a file was asked for."""
    if path is not None:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n")


def is_judged(arguments: argparse.Namespace, others_cores: float) -> bool:
    """Whether figures are held against what is promised: on a quiet machine, or because it was asked for."""
    return arguments.check or others_cores < QUIET_CORES


def verdict(complaints: list[str], others_cores: float, *, judged: bool, checked: bool) -> int:
    """Say what is not as promised; an exit code that depends on it when it was to be checked."""
    if not judged:
        sys.stderr.write(
            f"not judged: other processes used {others_cores:.2f} cores; repeat it on an idle machine\n"
        )
        return 0
    for complaint in complaints:
        sys.stderr.write(f"not as promised: {complaint}\n")
    return FAILED if checked and complaints else 0


def guarded(run: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """Turn what stops a measurement into a message and an exit code; SIGTERM stops like Ctrl-C."""

    def guarded_run(arguments: argparse.Namespace) -> int:
        signal.signal(signal.SIGTERM, interrupt)
        try:
            return run(arguments)
        except BenchError as error:
            sys.stderr.write(f"pointsman bench: error: {error}\n")
            return FAILED
        except KeyboardInterrupt:
            sys.stderr.write("pointsman bench: interrupted\n")
            return INTERRUPTED

    return guarded_run


def interrupt(*_: object) -> NoReturn:
    """Raise what Ctrl-C raises."""
    raise KeyboardInterrupt
