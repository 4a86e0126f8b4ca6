"""The objects as documents: Kubernetes' shape and llm-d's fields, decoded strictly.

What a Kubernetes server writes into an object (``uid``, ``managedFields``, ``status`` and so on) is accepted
and means nothing here, so that the output of ``kubectl get -o yaml`` is a document as it stands.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

import msgspec

from dataplane.errors import ConfigError
from epp.objects.model import MAX_MODEL_NAME_BYTES, MAX_WEIGHT, MIN_WEIGHT

POOL_GROUP: Final = "inference.networking.k8s.io"
OWN_VERSION: Final = "pointsman.dev/v1"
OBJECT_VERSIONS: Final = ("llm-d.ai/v1alpha2", "inference.networking.x-k8s.io/v1alpha2", OWN_VERSION)

OBJECTIVE: Final = "InferenceObjective"
REWRITE: Final = "InferenceModelRewrite"
POOL: Final = "InferencePool"

VERSIONS: Final = {
    OBJECTIVE: OBJECT_VERSIONS,
    REWRITE: OBJECT_VERSIONS,
    POOL: (f"{POOL_GROUP}/v1", OWN_VERSION),
}
"""Kind -> the values of ``apiVersion`` it may have."""

MAX_TARGET_PORTS: Final = 8
MAX_SELECTOR_LABELS: Final = 64

Int32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]


class _Section(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A part of a document."""


_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
MAX_NAME: Final = 253


def check_name(value: str | None, path: str) -> None:
    """``ConfigError`` for what Kubernetes would not take as a name."""
    if value is not None and not (len(value) <= MAX_NAME and _NAME.fullmatch(value)):
        shown = repr(value if len(value) <= 60 else f"{value[:60]}...")
        raise ConfigError(
            f"{shown} is no name; use lower-case letters, digits, - and ., at most {MAX_NAME}", path=path
        )


class Metadata(_Section, frozen=True, kw_only=True):
    """What Kubernetes says of every object."""

    name: str
    namespace: str | None = None
    creation_timestamp: str | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    deletion_grace_period_seconds: Any = None
    deletion_timestamp: Any = None
    finalizers: Any = None
    generate_name: Any = None
    generation: Any = None
    managed_fields: Any = None
    owner_references: Any = None
    resource_version: Any = None
    self_link: Any = None
    uid: Any = None

    def __post_init__(self) -> None:
        check_name(self.name, "name")
        check_name(self.namespace, "namespace")


class PoolRef(_Section, frozen=True, kw_only=True):
    """The pool an object belongs to, in the object's namespace."""

    group: str = POOL_GROUP
    kind: Literal["InferencePool"] = "InferencePool"
    name: str

    def __post_init__(self) -> None:
        check_name(self.name, "name")


class ObjectiveSpec(_Section, frozen=True, kw_only=True):
    """``InferenceObjective.spec``."""

    pool_ref: PoolRef
    priority: Int32 | None = None


class ModelMatch(_Section, frozen=True, kw_only=True):
    """How a requested model is compared."""

    type: Literal["Exact"] = "Exact"
    value: Annotated[str, msgspec.Meta(min_length=1)]


class Match(_Section, frozen=True, kw_only=True):
    """One condition; a rule needs one of its conditions to hold."""

    model: ModelMatch


class Target(_Section, frozen=True, kw_only=True):
    """One model that may serve the request."""

    model_rewrite: Annotated[str, msgspec.Meta(min_length=1)]
    weight: Annotated[int, msgspec.Meta(ge=MIN_WEIGHT, le=MAX_WEIGHT)] | None = None

    def __post_init__(self) -> None:
        try:
            length = len(self.model_rewrite.encode())
        except UnicodeEncodeError:
            raise ConfigError("is not Unicode text", path="modelRewrite") from None
        if length > MAX_MODEL_NAME_BYTES:
            raise ConfigError(f"is longer than {MAX_MODEL_NAME_BYTES} bytes", path="modelRewrite")


class Rule(_Section, frozen=True, kw_only=True):
    """Conditions and what follows from them."""

    matches: list[Match] = msgspec.field(default_factory=list)
    targets: list[Target]

    def __post_init__(self) -> None:
        if not self.targets:
            raise ConfigError("names no model; give at least one", path="targets")


class RewriteSpec(_Section, frozen=True, kw_only=True):
    """``InferenceModelRewrite.spec``."""

    pool_ref: PoolRef
    rules: list[Rule]


_LABEL_NAME: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_LABEL_KEY: Final = re.compile(rf"({_NAME.pattern}/)?{_LABEL_NAME}")
_LABEL_VALUE: Final = re.compile(rf"({_LABEL_NAME})?")
_KIND: Final = re.compile(r"[a-zA-Z]([-a-zA-Z0-9]{0,61}[a-zA-Z0-9])?")


class Selector(_Section, frozen=True, kw_only=True):
    """Which pods form the pool."""

    match_labels: dict[str, str]

    def __post_init__(self) -> None:
        for key, value in self.match_labels.items():
            shown = f"matchLabels.{key[:60]}"
            if len(key) > MAX_NAME or not _LABEL_KEY.fullmatch(key):
                raise ConfigError("is no label; write name or domain/name", path=shown)
            if not _LABEL_VALUE.fullmatch(value):
                raise ConfigError(
                    "must be at most 63 letters, digits, -, _ and ., with a letter or digit at both ends",
                    path=shown,
                )


class TargetPort(_Section, frozen=True, kw_only=True):
    """One port of every pod."""

    number: Port


class PickerPort(_Section, frozen=True, kw_only=True):
    """Port of the picker's service."""

    number: Port


class PickerRef(_Section, frozen=True, kw_only=True):
    """The picker as a gateway finds it."""

    group: str = ""
    kind: str = "Service"
    name: str
    port: PickerPort | None = None
    failure_mode: Literal["FailOpen", "FailClose"] = "FailClose"

    def __post_init__(self) -> None:
        check_name(self.name, "name")
        check_name(self.group or None, "group")
        if not _KIND.fullmatch(self.kind):
            raise ConfigError("must be a kind: at most 63 letters, digits and -, a letter first", path="kind")
        if self.kind == "Service" and self.port is None:
            raise ConfigError(
                "port is required when kind is 'Service' or unspecified (defaults to 'Service')", path="port"
            )


class PoolSpec(_Section, frozen=True, kw_only=True):
    """``InferencePool.spec``."""

    selector: Selector
    target_ports: list[TargetPort]
    app_protocol: Literal["http", "kubernetes.io/h2c"] = "http"
    endpoint_picker_ref: PickerRef | None = None
    driver: Any = None
    """Of ``pointsman.dev/v1``: who runs the pool. The control plane judges it; a picker has no use for it."""
    models: Any = None
    """The same: what clients may ask the pool for."""

    def __post_init__(self) -> None:
        labels = len(self.selector.match_labels)
        if not 0 < labels <= MAX_SELECTOR_LABELS:
            raise ConfigError(
                f"has {labels} labels; give 1 to {MAX_SELECTOR_LABELS}", path="selector.matchLabels"
            )
        numbers = [port.number for port in self.target_ports]
        if not 0 < len(numbers) <= MAX_TARGET_PORTS:
            raise ConfigError(f"must list 1 to {MAX_TARGET_PORTS} ports", path="targetPorts")
        if len(set(numbers)) < len(numbers):
            raise ConfigError("port number must be unique", path="targetPorts")


SPECS: Final[dict[str, type[msgspec.Struct]]] = {
    OBJECTIVE: ObjectiveSpec,
    REWRITE: RewriteSpec,
    POOL: PoolSpec,
}


class Envelope(_Section, frozen=True, kw_only=True):
    """A whole document; ``spec`` is decoded by kind."""

    api_version: str
    kind: str
    metadata: Metadata
    spec: dict[str, Any]
    status: Any = None
