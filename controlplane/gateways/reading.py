"""Gateways as the builders of Envoy's resources know them, read from the database in a few queries."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec

from controlplane.core.models import Resource
from controlplane.fleet import endpoints, status
from controlplane.fleet.local.commands import DEFAULT_MODEL
from controlplane.fleet.local.wanted import LOCAL
from controlplane.fleet.models import EndpointList, InferencePool
from controlplane.fleet.services import file_document
from controlplane.gateways.models import Gateway
from controlplane.gateways.specs import GatewaySpec
from controlplane.objectives.models import InferenceModelRewrite
from controlplane.providers.credentials import secrets_of
from controlplane.xds.envoy.clusters import picker_cluster_name
from controlplane.xds.envoy.resources import Certificate, Endpoints, GatewayShape
from controlplane.xds.envoy.shapes import ListenerShape, PickerShape, PoolShape, ProcessorShape
from dataplane.config.certificates import split_pem
from dataplane.errors import ConfigError
from dataplane.processes.ports import LOOPBACK
from epp.plugins.endpoint_list import list_servers

NO_PICKER: Final = picker_cluster_name("")
"""Cluster that the filter names and that no route leads to."""


class Lists:
    """The addresses in endpoint lists; each list is read once per version."""

    def __init__(self) -> None:
        self._read: dict[int, tuple[int, str, frozenset[endpoints.Key]]] = {}

    def addresses(self) -> dict[str, set[endpoints.Key]]:
        """Pool -> addresses; host names are left to the pool's picker."""
        rows = {
            pk: (version, pool)
            for pk, version, pool in EndpointList.objects.order_by().values_list("pk", "version", "pool")
        }
        known = {pk: each for pk, each in self._read.items() if rows.get(pk) == each[:2]}
        missing = [pk for pk in rows if pk not in known]
        for start in range(0, len(missing), endpoints.BATCH):
            for row in EndpointList.objects.filter(pk__in=missing[start : start + endpoints.BATCH]):
                known[row.pk] = (row.version, row.pool, frozenset(_listed(row)))
        self._read = known
        found: dict[str, set[endpoints.Key]] = {}
        for _, pool, listed in known.values():
            found.setdefault(pool, set()).update(listed)
        return found


def _listed(row: EndpointList) -> set[endpoints.Key]:
    wrong: list[ConfigError] = []
    listing = list_servers(file_document(row.resolve, row.endpoints), wrong)
    servers = () if listing is None else listing.servers
    return {(spec.address, spec.port) for server in servers if not server.host for spec in server.specs(())}


class GatewayReader:
    """Reads gateways; remembers what is costly to read."""

    def __init__(self) -> None:
        self._lists = Lists()

    def read(self, names: Collection[str]) -> dict[str, GatewayShape]:
        """Those of these names that there are."""
        rows = list(Gateway.objects.filter(name__in=list(names)))
        if not rows:
            return {}
        pools = list(InferencePool.objects.order_by("created_at", "name"))
        rewritten = rewritten_models(rewriting_rules())
        ports = status.ports_of(pool.name for pool in pools if pool.driver == LOCAL)
        secrets = secrets_of({row.credential for row in rows if row.credential})
        addresses = self._lists.addresses()
        for name, reported in endpoints.addresses(pool.name for pool in pools).items():
            addresses.setdefault(name, set()).update(reported)
        return {row.name: _gateway(row, pools, rewritten, ports, secrets, addresses) for row in rows}


def rewriting_rules() -> dict[str, list[Any]]:
    """Pool -> the rules of its rewrites, as their documents say them, the oldest rewrite first."""
    found: dict[str, list[Any]] = {}
    rows = InferenceModelRewrite.objects.order_by("created_at", "name")
    for pool, rules in rows.values_list("pool", "rules"):
        found.setdefault(pool, []).extend(rules)
    return found


def matched_models(rule: Mapping[str, Any]) -> list[str]:
    """The models that a rule of a rewrite matches."""
    return [match["model"]["value"] for match in rule.get("matches") or ()]


def rewritten_models(rules: Mapping[str, Sequence[Any]]) -> dict[str, list[str]]:
    """Pool -> the models that its rewrites match, of ``rewriting_rules``."""
    return {pool: [model for rule in said for model in matched_models(rule)] for pool, said in rules.items()}


def _gateway(
    row: Gateway,
    pools: list[InferencePool],
    rewritten: Mapping[str, list[str]],
    ports: Mapping[str, Mapping[str, int]],
    secrets: Mapping[str, str],
    addresses: Mapping[str, set[endpoints.Key]],
) -> GatewayShape:
    spec = msgspec.convert(row.spec, GatewaySpec)
    chosen = [pool for pool in pools if _is_selected(spec, pool)]
    shapes = tuple(_pool(pool, spec, rewritten.get(pool.name, []), ports.get(pool.name)) for pool in chosen)
    found: dict[str, Endpoints] = {pool.name: tuple(sorted(addresses.get(pool.name, ()))) for pool in chosen}
    secret = secrets.get(row.credential, "")
    chain, key = split_pem(secret)
    # Without a certificate that can be read nothing is said of it: an Envoy keeps the one it has.
    shown = Certificate(name=row.credential, chain=chain, key=key) if chain and key else None
    listener = ListenerShape(
        address=spec.listener.address,
        port=spec.listener.port,
        max_body_bytes=spec.max_request_body_bytes,
        stream_idle_timeout_s=spec.stream_idle_timeout_s,
        observe_responses=spec.observe_responses,
        access_log=spec.access_log,
        default_picker=NO_PICKER,
        tls_secret=row.credential,
        processor=_processor(spec),
    )
    return GatewayShape(listener=listener, pools=shapes, endpoints=found, certificate=shown)


def _processor(spec: GatewaySpec) -> ProcessorShape | None:
    said = spec.payload_processor
    if said is None:
        return None
    where = PickerShape(address=said.address, port=said.port, health_port=said.health_port, is_tls=said.tls)
    return ProcessorShape(
        where=where, fail_open=said.failure_mode == "FailOpen", sees_responses=said.responses
    )


def _is_selected(spec: GatewaySpec, pool: Resource) -> bool:
    wanted = {} if spec.pool_selector is None else spec.pool_selector.match_labels
    return all(pool.labels.get(name) == value for name, value in wanted.items())


def _pool(
    row: InferencePool, spec: GatewaySpec, rewritten: list[str], ports: Mapping[str, int] | None
) -> PoolShape:
    ref = row.spec.get("endpointPickerRef") or {}
    return PoolShape(
        name=row.name,
        names=tuple(names_of(row.spec, rewritten)),
        fail_open=ref.get("failureMode") == "FailOpen",
        observe_responses=spec.observe_responses or bool(rewritten),
        picker=_picker(row, spec, ref, ports),
    )


def names_of(spec: Mapping[str, Any], rewritten: Collection[str]) -> list[str]:
    """Every name under which clients reach a pool: its models, then those that its rewrites match."""
    return list(dict.fromkeys((*models_of(spec), *rewritten)))


def models_of(spec: Mapping[str, Any]) -> list[str]:
    """What clients may ask a pool for: what it says, else what its simulated servers serve."""
    said: list[str] | None = spec.get("models")
    if said is not None:
        return said
    simulated = (spec.get("driver") or {}).get("simulated")
    return [] if simulated is None else simulated.get("models") or [DEFAULT_MODEL]


def _picker(
    row: InferencePool, spec: GatewaySpec, ref: Mapping[str, Any], ports: Mapping[str, int] | None
) -> PickerShape | None:
    if row.driver == LOCAL:
        if ports is None:
            return None
        return PickerShape(address=LOOPBACK, port=ports["grpc"], health_port=ports["health"])
    port = ref.get("port")
    if port is None:
        return None
    external = spec.external_pickers
    return PickerShape(
        address=ref["name"],
        port=port["number"],
        health_port=external.health_port,
        is_tls=external.tls,
    )
