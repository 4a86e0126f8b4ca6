"""The running gateway: every process of a plan, started in order, awaited, watched and stopped.

Order of start: model servers, whose addresses are known only once they listen; then pickers, a payload
processor if there is one, and Envoy side by side. Each step ends when the part answers as it should, not when
its process exists:

    model servers   the endpoints file lists all replicas
    picker          its metrics show all endpoints ready
    processor       it is ready
    Envoy           it is live, has all endpoints, and its health checks accept every picker
"""

import asyncio
import json
from collections.abc import Mapping
from functools import partial
from typing import Any, Self

import aiohttp

from cli.local import commands
from cli.local.endpoints import ClusterFile
from cli.local.envoy import bootstrap
from cli.local.log_files import keep_small
from cli.local.metrics import sample_value, scrape
from cli.local.plan import Plan, PoolPlan
from cli.local.state import prepare
from cli.local.supervisor import Supervisor
from controlplane.xds.envoy.clusters import PROCESSOR_CLUSTER, picker_cluster_name, pool_cluster_name
from dataplane.processes.child import Say, StartError
from dataplane.processes.ports import LOOPBACK


class Gateway:
    """All processes of one plan. Use as an asynchronous context manager: leaving it stops everything."""

    def __init__(self, plan: Plan, say: Say, busy: Say = lambda _: None) -> None:
        self.plan = plan
        self._processes = Supervisor(plan.logs, say, busy)
        self.children = self._processes.children
        self.cluster_files = [ClusterFile(pool, say) for pool in plan.pools]
        self._background: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self.session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self._processes.stop(["envoy"])  # first, so that nobody is sent to a part that is going away
        await self.session.close()

    def kill(self) -> None:
        """End every process at once."""
        self._processes.kill()

    async def start(self) -> None:
        """Start everything and return when it is ready. Raises `StartError`."""
        plan = self.plan
        launch, step, until = self._processes.launch, self._processes.step, self._processes.until
        prepare(plan)
        for cluster in self.cluster_files:
            cluster.write()
        plan.envoy_file.write_text(json.dumps(bootstrap(plan), indent=1))
        await step("Envoy accepts its configuration", self._validate_envoy())
        for pool in plan.pools:
            await launch(f"sim-{pool.name}", commands.simulator(pool))
        for cluster in self.cluster_files:
            await step(
                f"{cluster.pool.replicas} model servers of {cluster.pool.name}",
                until(partial(self._has_endpoints, cluster), f"sim-{cluster.pool.name}"),
            )
        self._background = [asyncio.create_task(cluster.follow()) for cluster in self.cluster_files]
        self._background.append(asyncio.create_task(keep_small(plan, self.session)))
        for pool in plan.pools:
            await launch(f"epp-{pool.name}", commands.picker(plan, pool))
        if plan.processor is not None:
            await launch("ipp", commands.processor(plan, plan.processor))
        await launch("envoy", commands.envoy(plan))
        for pool in plan.pools:
            await step(
                f"Endpoint Picker of {pool.name}",
                until(partial(self._is_picker_ready, pool), f"epp-{pool.name}"),
            )
        if plan.processor is not None:
            await step("payload processor", until(self._is_processor_ready, "ipp"))
        await step("Envoy", until(self._is_envoy_ready, "envoy"))
        self._processes.all_ready()

    async def _validate_envoy(self) -> None:
        process = await asyncio.create_subprocess_exec(
            *map(str, commands.envoy(self.plan, validate=True)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        if process.returncode:
            raise StartError(f"Envoy refuses {self.plan.envoy_file}:\n{output.decode(errors='replace')}")

    async def _has_endpoints(self, cluster: ClusterFile) -> bool:
        cluster.refresh()
        return len(cluster.endpoints) >= cluster.pool.replicas

    async def _is_picker_ready(self, pool: PoolPlan) -> bool:
        metrics = await scrape(self.session, pool)
        ready = sample_value(metrics, "llm_d_epp_ready_endpoints", name=pool.name)
        return ready is not None and ready >= pool.replicas

    async def _is_processor_ready(self) -> bool:
        assert self.plan.processor is not None  # noqa: S101 - asked only where there is one
        try:
            url = f"http://{LOOPBACK}:{self.plan.processor.metrics_port}/readyz"
            async with self.session.get(url) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def _is_envoy_ready(self) -> bool:
        hosts = await self.envoy_hosts()
        if self.plan.processor is not None and not all(
            is_healthy(host) for host in hosts.get(PROCESSOR_CLUSTER, ({},))
        ):
            return False
        return all(
            len(hosts.get(pool_cluster_name(pool.name), ())) >= pool.replicas
            and all(is_healthy(host) for host in hosts.get(picker_cluster_name(pool.name), ({},)))
            for pool in self.plan.pools
        )

    async def envoy_hosts(self) -> dict[str, list[dict[str, Any]]]:
        """Return the hosts of each cluster as Envoy's admin interface shows them; none while it is down."""
        try:
            url = f"http://{LOOPBACK}:{self.plan.admin_port}/clusters?format=json"
            async with self.session.get(url) as answer:
                document = await answer.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, ValueError):
            return {}
        return {status["name"]: status.get("host_statuses", []) for status in document["cluster_statuses"]}


def is_healthy(host: Mapping[str, Any]) -> bool:
    """Tell whether Envoy's health checks accept a host."""
    status = host.get("health_status", {})
    return status.get("eds_health_status") == "HEALTHY" and not status.get(
        "failed_active_health_check", False
    )
