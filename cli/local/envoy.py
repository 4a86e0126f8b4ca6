"""Envoy's bootstrap configuration for a plan: a pure function from data to data.

Everything is in it but the endpoints of the pools, which Envoy follows in a file each.
"""

from typing import Any

from cli.local.plan import Plan, PoolPlan, ProcessorPlan
from controlplane.xds.envoy.clusters import (
    followed,
    picker_cluster,
    picker_cluster_name,
    pool_cluster,
    processor_clusters,
    socket_address,
)
from controlplane.xds.envoy.listener import connection_cap, listener
from controlplane.xds.envoy.routes import route_configuration
from controlplane.xds.envoy.shapes import ListenerShape, PickerShape, PoolShape, ProcessorShape
from dataplane.processes.ports import LOOPBACK


def bootstrap(plan: Plan) -> dict[str, Any]:
    """Return the configuration for `envoy --config-path`."""
    shapes = [pool_shape(plan, pool) for pool in plan.pools]
    shape = listener_shape(plan)
    routes = route_configuration("public", shapes, shape)
    return {
        "node": {"id": "pointsman-local", "cluster": "pointsman-local"},
        "admin": {"address": socket_address(LOOPBACK, plan.admin_port)},
        "overload_manager": connection_cap(),
        "static_resources": {
            "listeners": [listener(shape, {"route_config": routes})],
            "clusters": [
                *processor_clusters(shape),
                *(
                    cluster
                    for pool, known in zip(plan.pools, shapes, strict=True)
                    for cluster in (
                        pool_cluster(known, followed(cluster_source(pool))),
                        picker_cluster(known, plan.max_body_bytes),
                    )
                ),
            ],
        },
    }


def listener_shape(plan: Plan) -> ListenerShape:
    """The public listener."""
    return ListenerShape(
        address=plan.address,
        port=plan.port,
        max_body_bytes=plan.max_body_bytes,
        stream_idle_timeout_s=plan.stream_idle_timeout_s,
        observe_responses=plan.observe_responses,
        access_log=str(plan.access_log),
        default_picker=picker_cluster_name(plan.pools[0].name),
        processor=None if plan.processor is None else processor_shape(plan.processor),
    )


def processor_shape(ipp: ProcessorPlan) -> ProcessorShape:
    """The payload processor."""
    where = PickerShape(address=LOOPBACK, port=ipp.grpc_port, health_port=ipp.health_port)
    return ProcessorShape(where=where, fail_open=ipp.fail_open, sees_responses=ipp.responses)


def pool_shape(plan: Plan, pool: PoolPlan) -> PoolShape:
    """One pool."""
    return PoolShape(
        name=pool.name,
        names=pool.names,
        fail_open=pool.fail_open,
        observe_responses=plan.observe_responses,
        picker=PickerShape(address=LOOPBACK, port=pool.grpc_port, health_port=pool.health_port),
    )


def cluster_source(pool: PoolPlan) -> dict[str, Any]:
    """The file that names a pool's endpoints."""
    return {
        "resource_api_version": "V3",
        "path_config_source": {
            "path": str(pool.cluster_file),
            "watched_directory": {"path": str(pool.cluster_file.parent)},
        },
    }
