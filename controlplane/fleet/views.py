"""Pages of the fleet: the overview, and pools with their endpoints."""

from __future__ import annotations

from typing import Any, Final

from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from controlplane.configs.models import Rollout
from controlplane.configs.rollout import SPREADING
from controlplane.core.console.views import ConsoleView
from controlplane.core.roles import Actor
from controlplane.fleet.models import Health, InferencePool, PoolEndpoint, PoolStatus
from controlplane.fleet.services import PoolService
from controlplane.fleet.status import STALE_AFTER
from controlplane.xds import workers
from controlplane.xds.models import Worker

MAX_SHOWN: Final = 200
"""Pools and workers on a page."""
MAX_ROLLOUTS: Final = 8


class Overview(ConsoleView):
    """How everything is at this moment; htmx asks for the middle of it again."""

    def get(self, request: HttpRequest) -> HttpResponse:
        """The page, or its live part."""
        pools = pool_rows(self.actor)
        there = Worker.objects.filter(is_connected=True, seen_at__gte=timezone.now() - workers.SEEN_WITHIN)
        context = {
            "pools": pools,
            "pools_serving": sum(row["status"][0] == "ok" for row in pools),
            "endpoints": sum(row["endpoints"] for row in pools),
            "endpoints_healthy": sum(row["healthy"] for row in pools),
            "workers": there.count(),
            "rollouts_running": Rollout.objects.filter(stage__in=SPREADING).count(),
            "rollouts": Rollout.objects.select_related("document", "revision")[:MAX_ROLLOUTS],
        }
        is_part = request.headers.get("HX-Request") == "true"
        return self.page("fleet/overview_live.html" if is_part else "fleet/overview.html", context)


def pool_rows(actor: Actor) -> list[dict[str, Any]]:
    """Pools as tables show them: a few queries, however many there are."""
    pools = list(PoolService().rows(actor).order_by("name")[:MAX_SHOWN])
    names = [pool.name for pool in pools]
    reports = {row.pool: row for row in PoolStatus.objects.filter(pool__in=names)}
    counted = PoolEndpoint.objects.filter(pool__in=names).values("pool").order_by("pool")
    endpoints = {
        row["pool"]: (row["all"], row["healthy"])
        for row in counted.annotate(all=Count("id"), healthy=Count("id", Q(health=Health.HEALTHY)))
    }
    return [
        {
            "name": pool.name,
            "models": models_of(pool),
            "endpoints": endpoints.get(pool.name, (0, 0))[0],
            "healthy": endpoints.get(pool.name, (0, 0))[1],
            "status": pool_status(pool, reports.get(pool.name)),
        }
        for pool in pools
    ]


def models_of(pool: InferencePool) -> list[str]:
    """What clients may ask a pool for, as its document says."""
    driver = pool.spec.get("driver") or {}
    simulated = driver.get("simulated") or {}
    return list(pool.spec.get("models") or simulated.get("models") or [])


def pool_status(pool: InferencePool, row: PoolStatus | None) -> tuple[str, str]:
    """Kind and words of a pool's state."""
    if not pool.driver:
        return "idle", "Run elsewhere"
    if row is None:
        return "warn", "Not reported yet"
    if timezone.now() - row.reported_at > STALE_AFTER:
        return "bad", "No news"
    said = str(row.report.get("state", "running"))
    return ("ok" if said == "running" else "warn"), said.capitalize()
