"""The one YAML file that drives a gateway on one machine: `deploy/local.yaml`.

Decoding is strict and tells all mistakes at once, each with its path (`pools[1].simulator.replicas`) and,
for a misspelt field, the nearest known one. Ports are optional everywhere; 0 means "a free one". What the
file means for processes is decided in `cli.local.plan`.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from dataplane.config.decode import Duration, Quantity, decode_struct
from dataplane.config.document import read_document
from dataplane.config.problems import raise_any
from dataplane.errors import ConfigError
from epp.objects.schema import Int32, Rule, check_name

MIB = 1024 * 1024
BODY_BYTES = range(MIB, 64 * MIB + 1)
IDLE_TIMEOUT_MAX_S = 3600
FAILURE_MODES = ("FailOpen", "FailClose")
MAX_POOLS = 32

Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$")]
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class Section(msgspec.Struct, forbid_unknown_fields=True, rename="camel", frozen=True):
    """Base of every part of the file."""


class GatewaySection(Section, frozen=True, kw_only=True):
    """Envoy: where clients connect and what it lets through."""

    address: str = "127.0.0.1"
    """Address of the public listener. The gateway has no authentication: loopback keeps it private."""
    port: Port = 0
    """Port of the public listener; a port in use is an error, 0 takes a free one."""
    admin_port: Port = 0
    """Envoy's admin interface, always on loopback."""
    max_request_body: Quantity = Quantity(16 * MIB)
    """Largest request body; beyond it the answer is 413. Also what one connection may buffer."""
    stream_idle_timeout: Duration = Duration(300)
    """A request or response without a byte for this long is ended. There is no limit on its total time."""
    workers: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    """Envoy's worker threads."""
    observe_responses: bool = True
    """Show response bodies to the pickers, for usage, TTFT and cached tokens. False saves CPU.

    They are shown in any case where a pool has rewrites: models are named in them.
    """

    def __post_init__(self) -> None:
        if self.max_request_body not in BODY_BYTES:
            raise ConfigError("must be between 1Mi and 64Mi", path="maxRequestBody")
        if not 0 < self.stream_idle_timeout <= IDLE_TIMEOUT_MAX_S:
            raise ConfigError("must be more than 0s and at most 1h", path="streamIdleTimeout")


class SimulatorSection(Section, frozen=True, kw_only=True):
    """Simulated model servers of one pool."""

    replicas: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 2
    """Endpoints of the pool."""
    profile: Text | None = None
    """Latency profile: a name the simulator knows, or a YAML file."""
    admin_port: Port = 0
    flags: list[str] = []
    """More flags of `pointsman sim`."""


class PickerSection(Section, frozen=True, kw_only=True):
    """The Endpoint Picker of one pool."""

    config: dict[str, Any] | None = None
    """An EndpointPickerConfig; the built-in scorers when left out. File discovery is added to it."""
    grpc_port: Port = 0
    health_port: Port = 0
    metrics_port: Port = 0
    flags: list[str] = []
    """More flags of `pointsman epp`."""


class PoolSection(Section, frozen=True, kw_only=True):
    """Model servers of one model, with their picker."""

    name: Name
    models: list[Text]
    """Names clients may ask for in `model`; the first is the one the simulated servers report."""
    failure_mode: str = "FailOpen"
    """Without the picker: round robin over the pool, or 503."""
    objectives: dict[str, Int32] = {}
    """Priority by the name that requests put into the objective header."""
    rewrites: list[Rule] = []
    """Rules of an InferenceModelRewrite; the models they match are routed to the pool as well."""
    simulator: SimulatorSection = SimulatorSection()
    picker: PickerSection = PickerSection()

    @property
    def names(self) -> list[str]:
        """Every name that clients may ask for: the models, then those that only a rewrite knows."""
        matched = (match.model.value for rule in self.rewrites for match in rule.matches)
        return list(dict.fromkeys([*self.models, *matched]))

    def __post_init__(self) -> None:
        if not self.models:
            raise ConfigError("names no model", path="models")
        for name in self.objectives:
            check_name(name, f"objectives.{name}")
        if self.failure_mode not in FAILURE_MODES:
            raise ConfigError(f"must be {' or '.join(FAILURE_MODES)}", path="failureMode")


class ProcessorSection(Section, frozen=True, kw_only=True):
    """The payload processor that every request passes before a pool is chosen."""

    config: dict[str, Any] | None = None
    """A PayloadProcessorConfig; left out, model and base model into headers, and policies enforced."""
    policies: list[dict[str, Any]] = []
    """GuardrailPolicies, as documents."""
    failure_mode: str = "FailClose"
    """Without the processor: 503, or requests pass unchecked."""
    responses: bool = True
    """Show it responses, for guardrails on answers and headers on responses. False saves CPU."""
    grpc_port: Port = 0
    health_port: Port = 0
    metrics_port: Port = 0
    flags: list[str] = []
    """More flags of `pointsman ipp`."""

    def __post_init__(self) -> None:
        if self.failure_mode not in FAILURE_MODES:
            raise ConfigError(f"must be {' or '.join(FAILURE_MODES)}", path="failureMode")


class LocalConfig(Section, frozen=True, kw_only=True):
    """The whole file."""

    gateway: GatewaySection = GatewaySection()
    pools: list[PoolSection]
    payload_processor: ProcessorSection | None = None
    """None = requests go to their pools as they are."""


def check_pools(pools: Sequence[PoolSection]) -> None:
    """Refuse what is right in each pool and wrong in all together; asked only when each is right."""
    if not 0 < len(pools) <= MAX_POOLS:
        raise ConfigError(f"must name between 1 and {MAX_POOLS} pools", path="pools")
    problems = [
        *repeated((pool.name for pool in pools), "pool name"),
        *(
            problem
            for index, pool in enumerate(pools)
            for problem in repeated(pool.models, "model", f"pools[{index}].models")
        ),
        *repeated((name for pool in pools for name in pool.names), "model"),
    ]
    raise_any(problems)


def repeated(names: Iterable[str], what: str, path: str = "pools") -> list[ConfigError]:
    """A complaint for each name that is claimed twice."""
    return [
        ConfigError(f"{what} {name!r} appears more than once", path=path)
        for name, count in Counter(names).items()
        if count > 1
    ]


def load(path: Path) -> LocalConfig:
    """Read and check a file. Raises `ConfigError` with every mistake and its path inside the document."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}; name another file with --config") from None
    return parse(text)


def parse(text: str | bytes) -> LocalConfig:
    """Check the text of a file. Raises `ConfigError`."""
    problems: list[ConfigError] = []
    document = read_document(text, problems)
    raise_any(problems)
    config = decode_struct(document, LocalConfig, "", problems)
    raise_any(problems)
    if config is None:
        raise AssertionError("unreachable: decoding without a problem yields a value")
    check_pools(config.pools)
    return config


def with_free_ports(config: LocalConfig) -> LocalConfig:
    """Return the same configuration with every port left to be chosen."""
    replace = msgspec.structs.replace
    processor = config.payload_processor
    if processor is not None:
        processor = replace(processor, grpc_port=0, health_port=0, metrics_port=0)
    return replace(
        config,
        payload_processor=processor,
        gateway=replace(config.gateway, port=0, admin_port=0),
        pools=[
            replace(
                pool,
                simulator=replace(pool.simulator, admin_port=0),
                picker=replace(pool.picker, grpc_port=0, health_port=0, metrics_port=0),
            )
            for pool in config.pools
        ],
    )
