"""What will run: the configuration file with every port chosen and every path fixed.

A plan is immutable and holds no process. The Envoy configuration, the command lines and what is shown to
the user are all derived from it, so that they cannot disagree.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli.local.config import LocalConfig, PoolSection, ProcessorSection
from cli.local.processor import processor_document
from dataplane.addresses import host_port
from dataplane.errors import ConfigError
from dataplane.processes.ports import PortChooser
from epp.objects.schema import OBJECTIVE, OWN_VERSION, REWRITE, Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPlan:
    """One pool: simulated servers, their picker, Envoy's cluster and route."""

    name: str
    models: tuple[str, ...]
    """Served by the model servers."""
    names: tuple[str, ...]
    """Models clients may ask for: those above, then those that a rewrite turns into one of them."""
    objectives: tuple[str, ...]
    """Names that requests may put into the objective header."""
    objects: tuple[Mapping[str, Any], ...]
    """Documents of objectives and rewrites."""
    fail_open: bool
    replicas: int
    profile: str | None
    simulator_flags: tuple[str, ...]
    simulator_admin_port: int
    picker_config: Mapping[str, Any]
    picker_flags: tuple[str, ...]
    grpc_port: int
    health_port: int
    metrics_port: int
    folder: Path
    """Files of this pool: what its processes read and write."""

    @property
    def endpoints_file(self) -> Path:
        """Written by the simulator, followed by the picker and by the runtime."""
        return self.folder / "endpoints.yaml"

    @property
    def picker_file(self) -> Path:
        """The EndpointPickerConfig."""
        return self.folder / "picker.yaml"

    @property
    def objects_file(self) -> Path:
        """The documents of objectives and rewrites, followed by the picker."""
        return self.folder / "objects.yaml"

    @property
    def cluster_file(self) -> Path:
        """The pool's endpoints as Envoy follows them."""
        return self.folder / "cluster" / "endpoints.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorPlan:
    """The payload processor."""

    config: Mapping[str, Any] | None
    """None = the built-in one."""
    policies: tuple[Mapping[str, Any], ...]
    fail_open: bool
    responses: bool
    grpc_port: int
    health_port: int
    metrics_port: int
    flags: tuple[str, ...]
    folder: Path

    @property
    def config_file(self) -> Path:
        """The PayloadProcessorConfig."""
        return self.folder / "processor.yaml"

    @property
    def policies_file(self) -> Path:
        """The documents of policies, followed by the processor."""
        return self.folder / "policies.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that will run."""

    address: str
    port: int
    admin_port: int
    max_body_bytes: int
    stream_idle_timeout_s: float
    workers: int
    observe_responses: bool
    state: Path
    pools: tuple[PoolPlan, ...]
    processor: ProcessorPlan | None = None

    @property
    def url(self) -> str:
        """Where clients connect."""
        host = "127.0.0.1" if self.address == "0.0.0.0" else self.address  # noqa: S104  # compared, not bound
        return f"http://{host_port(host, self.port)}"

    @property
    def logs(self) -> Path:
        """Folder of the log files, one per process."""
        return self.state / "logs"

    @property
    def envoy_file(self) -> Path:
        """Envoy's bootstrap configuration."""
        return self.state / "envoy.json"

    @property
    def access_log(self) -> Path:
        """One JSON object per request."""
        return self.logs / "access.jsonl"


def make_plan(config: LocalConfig, state: Path, choose: PortChooser) -> Plan:
    """Fix ports and paths. Raises `ConfigError` when a configured port is taken."""
    gateway = config.gateway
    return Plan(
        address=gateway.address,
        port=choose(gateway.port, "gateway.port", gateway.address, " (--port 0 does it for one run)"),
        admin_port=choose(gateway.admin_port, "gateway.adminPort"),
        max_body_bytes=gateway.max_request_body,
        stream_idle_timeout_s=gateway.stream_idle_timeout,
        workers=gateway.workers,
        # A rewritten name has to be put back into the response.
        observe_responses=gateway.observe_responses or any(pool.rewrites for pool in config.pools),
        state=state,
        pools=tuple(
            plan_pool(pool, f"pools[{index}]", state, choose) for index, pool in enumerate(config.pools)
        ),
        processor=plan_processor(config.payload_processor, config.pools, state / "ipp", choose),
    )


def plan_processor(
    section: ProcessorSection | None, pools: Sequence[PoolSection], folder: Path, choose: PortChooser
) -> ProcessorPlan | None:
    """Fix ports and paths of the payload processor, if there is one."""
    if section is None:
        return None
    path = "payloadProcessor"
    return ProcessorPlan(
        config=processor_document(section, pools),
        policies=tuple(section.policies),
        fail_open=section.failure_mode == "FailOpen",
        responses=section.responses,
        grpc_port=choose(section.grpc_port, f"{path}.grpcPort"),
        health_port=choose(section.health_port, f"{path}.healthPort"),
        metrics_port=choose(section.metrics_port, f"{path}.metricsPort"),
        flags=tuple(section.flags),
        folder=folder,
    )


def plan_pool(pool: PoolSection, path: str, state: Path, choose: PortChooser) -> PoolPlan:
    """Fix ports and paths of one pool."""
    folder = state / "pools" / pool.name
    return PoolPlan(
        name=pool.name,
        models=tuple(pool.models),
        names=tuple(pool.names),
        objectives=tuple(pool.objectives),
        objects=tuple(object_documents(pool)),
        fail_open=pool.failure_mode == "FailOpen",
        replicas=pool.simulator.replicas,
        profile=pool.simulator.profile,
        simulator_flags=tuple(pool.simulator.flags),
        simulator_admin_port=choose(pool.simulator.admin_port, f"{path}.simulator.adminPort"),
        picker_config=picker_document(pool.picker.config, folder / "endpoints.yaml", path),
        picker_flags=tuple(pool.picker.flags),
        grpc_port=choose(pool.picker.grpc_port, f"{path}.picker.grpcPort"),
        health_port=choose(pool.picker.health_port, f"{path}.picker.healthPort"),
        metrics_port=choose(pool.picker.metrics_port, f"{path}.picker.metricsPort"),
        folder=folder,
    )


DEFAULT_PICKER: Mapping[str, Any] = {
    "plugins": [
        {"type": "queue-scorer"},
        {"type": "kv-cache-utilization-scorer"},
        {"type": "prefix-cache-scorer"},
    ],
    "schedulingProfiles": [
        {
            "name": "default",
            "plugins": [
                {"pluginRef": "queue-scorer", "weight": 2},
                {"pluginRef": "kv-cache-utilization-scorer", "weight": 2},
                {"pluginRef": "prefix-cache-scorer", "weight": 3},
            ],
        }
    ],
}
"""The picker's built-in scorers, spelt out: naming a discovery plugin replaces the built-in document."""


def picker_document(given: Mapping[str, Any] | None, endpoints: Path, path: str) -> Mapping[str, Any]:
    """Return an EndpointPickerConfig that discovers its endpoints from the file the simulator writes."""
    document = dict(DEFAULT_PICKER if given is None else given)
    data_layer = dict(document.get("dataLayer") or {})
    if "discovery" in data_layer:
        raise ConfigError(
            "is set by 'pointsman up'; remove it", path=f"{path}.picker.config.dataLayer.discovery"
        )
    discovery = {"type": "file-discovery", "parameters": {"path": str(endpoints), "watchFile": True}}
    return {
        "apiVersion": "llm-d.ai/v1alpha1",
        "kind": "EndpointPickerConfig",
        **document,
        "plugins": [*(document.get("plugins") or []), discovery],
        "dataLayer": {**data_layer, "discovery": {"pluginRef": "file-discovery"}},
    }


def object_documents(pool: PoolSection) -> Iterator[Mapping[str, Any]]:
    """The pool's objectives and rewrites as the documents that its picker reads."""
    ref = {"poolRef": {"name": pool.name}}
    for name, priority in pool.objectives.items():
        yield object_document(OBJECTIVE, name, {**ref, "priority": priority})
    if pool.rewrites:
        rules = [rule_document(rule) for rule in pool.rewrites]
        yield object_document(REWRITE, pool.name, {**ref, "rules": rules})


def object_document(kind: str, name: str, spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """One document."""
    return {"apiVersion": OWN_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def rule_document(rule: Rule) -> Mapping[str, Any]:
    """A rule as it is written."""
    targets = [
        {"modelRewrite": target.model_rewrite, **({} if target.weight is None else {"weight": target.weight})}
        for target in rule.targets
    ]
    return {"matches": [{"model": {"value": m.model.value}} for m in rule.matches], "targets": targets}
