"""What the flags of every ext_proc process say alike, as its options; each process adds its own.

Building them reads flags only: nothing is opened, and nothing blocks.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from dataplane import valkey
from dataplane.flags import Flag, Kind
from dataplane.process_flags import XDS_FLAGS, log_level, message_size

ADDRESS_FLAGS: Final = (
    Flag("metrics-port", Kind.NUMBER, "9090", "HTTP port of metrics and debug pages"),
    Flag("host", Kind.TEXT, "", "address to listen on; empty = all"),
    Flag("metrics-host", Kind.TEXT, "", "address of the metrics port; empty = that of --host"),
    Flag("grpc-socket", Kind.TEXT, "", "Unix socket for the ext_proc service, instead of --grpc-port"),
)
PLUGIN_FLAGS: Final = (
    Flag("allow-experimental-plugins", Kind.SWITCH, "false", "accept plugins of Alpha stability"),
    Flag("external-plugins", Kind.SWITCH, "true", "load the plugins of installed packages"),
)
REQUEST_FLAGS: Final = (
    Flag("drain-timeout", Kind.DURATION, "30s", "how long running streams may finish after SIGTERM"),
    Flag("request-timeout", Kind.DURATION, "60s", "deadline of the request phase; over it 504"),
    Flag("max-request-body", Kind.QUANTITY, "16Mi", "largest request body; over it 413"),
    Flag("grpc-max-recv-msg-size", Kind.TEXT, "", "largest gRPC message received; empty = 16Mi"),
)


def config_flags(kind: str) -> tuple[Flag, ...]:
    """Where the configuration is, which is a document of this kind."""
    return (
        Flag("config-file", Kind.TEXT, "", f"file with the {kind}; neither = built-in default"),
        Flag("config-text", Kind.TEXT, "", f"the {kind} itself"),
        Flag("watch-config", Kind.SWITCH, "true", "take a changed --config-file without a restart"),
    )


def xds_flags(sent: str) -> tuple[Flag, ...]:
    """The control plane, which sends this."""
    return (Flag("xds-server", Kind.TEXT, "", f"host:port of a control plane that sends {sent}"), *XDS_FLAGS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessOptions:
    """What the flags say, checked. Times in seconds, sizes in bytes; names are those of the flags."""

    grpc_port: int
    """0 = any free port; so for the other ports."""
    grpc_health_port: int
    metrics_port: int = 9090
    host: str = ""
    """Empty = all addresses."""
    metrics_host: str = ""
    grpc_socket: str = ""
    """When set, ext_proc listens there and not on ``grpc_port``."""
    config_file: str = ""
    config_text: str = ""
    watch_config: bool = True
    xds_server: str = ""
    """When set, what it sends comes from there and not from files."""
    xds_token_file: str = ""
    xds_ca: str = ""
    """When set, the control plane is spoken to over TLS."""
    xds_cert: str = ""
    xds_key: str = ""
    xds_cache: str = ""
    xds_node_id: str = ""
    allow_experimental_plugins: bool = False
    external_plugins: bool = True
    drain_timeout: float = 30.0
    request_timeout: float = 60.0
    max_request_body: int = 16 << 20
    grpc_max_recv_msg_size: int | None = None
    """None = the transport's default."""
    valkey_url: str = ""
    health_checking: bool = False
    secure_serving: bool = True
    cert_path: str = ""
    enable_cert_reload: bool = False
    tls_min_version: str = ""
    tls_cipher_suites: tuple[str, ...] = ()
    metrics_cert_dir: str = ""
    """When set, the metrics port speaks TLS."""
    metrics_client_ca_file: str = ""
    """When set, it serves clients with a certificate of these authorities only."""
    log_level: int = logging.INFO
    log_json: bool = False
    warnings: tuple[str, ...] = ()
    """What to say once there is a log."""

    def shown(self) -> dict[str, Any]:
        """The options as JSON-able data under the flags' names."""
        fields = dataclasses.asdict(self)
        fields["valkey_url"] = valkey.without_password(self.valkey_url)
        fields["log_level"] = logging.getLevelName(self.log_level)
        return {name.replace("_", "-"): value for name, value in fields.items() if name != "warnings"}


Options = TypeVar("Options", bound=ProcessOptions)


def options_of(
    kind: type[Options], given: Mapping[str, Any], values: Mapping[str, Any], **derived: Any
) -> Options:
    """Options of a kind from checked values by flag; ``derived`` stand in the place of values, by field."""
    fields = {
        **{name.replace("-", "_"): value for name, value in values.items()},
        "metrics_host": values["metrics-host"] or values["host"],
        "grpc_max_recv_msg_size": message_size(values, "grpc-max-recv-msg-size"),
        "log_level": log_level(given, values),
        "log_json": values["zap-encoder"] == "json",
        **derived,
    }
    return kind(**{field.name: fields[field.name] for field in dataclasses.fields(kind)})
