"""What Django's admin shows: every kind of object, people and tokens, and records of what happened.

Models are listed here one by one, except those of kinds: what holds a secret is not shown by accident.
"""

from __future__ import annotations

from typing import Final

from controlplane.configs.models import ConfigRevision, RevisionAck, Rollout, Running
from controlplane.core.administration.pages import ResourceAdmin, TokenAdmin, UserAdmin, records
from controlplane.core.administration.site import AdministrationSite
from controlplane.core.kinds import KINDS
from controlplane.core.models import ApiToken, AuditEntry, LoginFailure, User
from controlplane.fleet.models import PoolEndpoint, PoolStatus
from controlplane.usage.models import DailyUsage, DeadLetter, HourlyUsage, LedgerEntry
from controlplane.xds.models import Worker, WorkerAnswer

_TOTALS: Final = ("start", "tenant", "model", "pool", "requests", "errors", "cost", "currency")
_RECORDS: Final = {
    AuditEntry: records(
        *("at", "actor", "channel", "action", "kind", "name", "request_id"),
        search=("actor", "kind", "name", "request_id"),
        filters=("channel",),
    ),
    LoginFailure: records("at", "username", "source", search=("username", "source")),
    ConfigRevision: records("document", "number", "author", "comment", "created_at"),
    Rollout: records("document", "revision", "stage", "reason", "author", "created_at", filters=("stage",)),
    RevisionAck: records("rollout", "worker", "outcome", "requests", "errors", "at", filters=("outcome",)),
    Running: records("worker", "document", "revision"),
    PoolStatus: records("pool", "reported_at", "runner", search=("pool",)),
    PoolEndpoint: records(
        *("pool", "name", "address", "port", "health", "changed_at"),
        search=("pool", "name"),
        filters=("health",),
    ),
    Worker: records("node_id", "pool", "user", "is_connected", "seen_at", search=("node_id", "pool")),
    WorkerAnswer: records("worker", "type_url", "outcome", "version", "at", filters=("outcome",)),
    LedgerEntry: records(
        "at", "tenant", "served_model", "pool", "status", "cost", "currency", search=("id", "tenant")
    ),
    HourlyUsage: records(*_TOTALS, search=("tenant", "model", "pool")),
    DailyUsage: records(*_TOTALS, search=("tenant", "model", "pool")),
    DeadLetter: records("at", "reason", "source", "entry"),
}


def _site() -> AdministrationSite:
    made = AdministrationSite()
    for service in KINDS.all():
        made.register(service.model, ResourceAdmin)
    made.register(User, UserAdmin)
    made.register(ApiToken, TokenAdmin)
    for model, shown in _RECORDS.items():
        made.register(model, shown)
    return made


site = _site()
