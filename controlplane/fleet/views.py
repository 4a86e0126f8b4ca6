"""Pages of the fleet: the overview, and pools with their endpoints."""

from __future__ import annotations

from typing import Any, Final

from django import forms
from django.contrib import messages
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone

from controlplane.configs.models import PoolBinding, Rollout
from controlplane.configs.rollout import SPREADING
from controlplane.core.console.views import ConsoleView
from controlplane.core.errors import Detail, ForbiddenError, ServiceError
from controlplane.core.roles import Action, Actor, require
from controlplane.fleet import endpoints
from controlplane.fleet.models import Health, InferencePool, PoolEndpoint, PoolStatus
from controlplane.fleet.services import PoolService
from controlplane.fleet.simulated import create_simulated, remove
from controlplane.fleet.specs import MAX_REPLICAS
from controlplane.fleet.status import STALE_AFTER
from controlplane.telemetry import panels
from controlplane.xds import workers
from controlplane.xds.models import Worker
from controlplane.xds.nodes import NodeKind
from epp.objects import schema

MAX_SHOWN: Final = 200
"""Pools and workers on a page."""
MAX_ROLLOUTS: Final = 8
_STATES: Final = {"ready": "ok", "running": "ok", "failed": "bad", "refused": "bad", "down": "bad"}
"""What the runner says of a pool, and the kind of status it is; all else is on its way."""


class Overview(ConsoleView):
    """How everything is at this moment; htmx asks for the middle of it again."""

    def get(self, request: HttpRequest) -> HttpResponse:
        """The page, or its live part."""
        pools = pool_rows(self.actor)
        there = Worker.objects.filter(is_connected=True, seen_at__gte=timezone.now() - workers.SEEN_WITHIN)
        pickers = there.filter(kind=NodeKind.PICKER, pool__in=InferencePool.objects.values("name"))
        context = {
            "pools": pools,
            "pools_serving": sum(row["status"][0] == "ok" for row in pools),
            "endpoints": sum(row["endpoints"] for row in pools),
            "endpoints_healthy": sum(row["healthy"] for row in pools),
            "pickers": pickers.count(),
            "rollouts_running": Rollout.objects.filter(stage__in=SPREADING).count(),
            "panel": panels.panel(self.actor),
            "rollouts": Rollout.objects.select_related("document", "revision")[:MAX_ROLLOUTS],
        }
        return self.page(f"fleet/overview{'_live' if self.is_part else ''}.html", context)


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
    told = panels.cells(actor)
    return [
        {
            "name": pool.name,
            "models": models_of(pool),
            "endpoints": endpoints.get(pool.name, (0, 0))[0],
            "healthy": endpoints.get(pool.name, (0, 0))[1],
            "status": pool_status(pool, reports.get(pool.name)),
            "numbers": None if told is None else told.get(pool.name, [panels.NOTHING] * len(panels.OF_ALL)),
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
    return _STATES.get(said, "warn"), said.capitalize()


class Pools(ConsoleView):
    """All pools."""

    def get(self, request: HttpRequest) -> HttpResponse:
        """The list."""
        return self.page("fleet/pools.html", {"pools": pool_rows(self.actor)})


class PoolForm(forms.Form):
    """A pool of simulated servers, with the built-in way to decide."""

    name = forms.CharField(max_length=63, help_text="Lower-case letters, digits and hyphens.")
    models = forms.CharField(
        max_length=1000, help_text="What clients may ask for; several with commas between."
    )
    replicas = forms.IntegerField(
        label="Simulated model servers", min_value=1, max_value=MAX_REPLICAS, initial=3
    )


class PoolCreate(ConsoleView):
    """A new pool."""

    def get(self, request: HttpRequest) -> HttpResponse:
        """The form."""
        require(self.actor, Action.WRITE, schema.POOL)
        return self.page("fleet/pool_create.html", {"form": PoolForm()})

    def post(self, request: HttpRequest) -> HttpResponse:
        """Make the pool and its configuration, both or neither."""
        form = PoolForm(request.POST)
        problems: list[Detail] = []
        if form.is_valid():
            said = form.cleaned_data
            models = [model.strip() for model in said["models"].split(",") if model.strip()]
            try:
                create_simulated(self.actor, said["name"], models, said["replicas"])
            except ForbiddenError:
                raise
            except ServiceError as error:
                problems = error.details or [Detail("", error.message)]
            else:
                messages.success(request, f"{said['name']} is made; its servers and picker are starting.")
                return redirect("console:pool", said["name"])
        return self.page("fleet/pool_create.html", {"form": form, "problems": problems}, status=422)


class Pool(ConsoleView):
    """One pool: its state, endpoints, and workers; htmx asks for the middle of it again."""

    def get(self, request: HttpRequest, name: str) -> HttpResponse:
        """The page, or its live part."""
        pool = PoolService().get(self.actor, name)
        found = endpoints.rows(self.actor, name).order_by("name")
        there = workers.rows(self.actor).filter(kind=NodeKind.PICKER, pool=name)[:MAX_SHOWN]
        binding = PoolBinding.objects.select_related("document").filter(pool=name).first()
        context = {
            "pool": pool,
            "models": models_of(pool),
            "status": pool_status(pool, PoolStatus.objects.filter(pool=name).first()),
            "endpoints": found[:MAX_SHOWN],
            "endpoint_count": found.count(),
            "workers": [workers.describe(row) | {"seen": row.seen_at} for row in there],
            "panel": panels.panel(self.actor, name),
            "document": None if binding is None else binding.document,
            "tab": "summary",
        }
        return self.page(f"fleet/pool{'_live' if self.is_part else ''}.html", context)


class PoolDelete(ConsoleView):
    """Deletes a pool whose name is typed."""

    def get(self, request: HttpRequest, name: str) -> HttpResponse:
        """What will go, and the field for the name."""
        require(self.actor, Action.WRITE, schema.POOL)
        return self.page("fleet/pool_delete.html", {"pool": PoolService().get(self.actor, name)})

    def post(self, request: HttpRequest, name: str) -> HttpResponse:
        """Delete it, and the configuration that was for it alone."""
        pool = PoolService().get(self.actor, name)
        if request.POST.get("typed") != name:
            context = {"pool": pool, "wrong": "This is not the pool's name; nothing was deleted."}
            return self.page("fleet/pool_delete.html", context, status=422)
        remove(self.actor, name)
        messages.success(request, f"{name} is deleted.")
        return redirect("console:pools")
