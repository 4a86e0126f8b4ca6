"""Addresses of the console's pages."""

from __future__ import annotations

from django.urls import path

from controlplane.configs import creating, places, processors
from controlplane.configs import views as configs
from controlplane.core.console import audit, styleguide
from controlplane.fleet import views as fleet
from controlplane.policies.pages import place, verdicts
from controlplane.policies.pages import views as policies
from controlplane.tenancy import views as tenancy

app_name = "console"
urlpatterns = [
    path("", fleet.Overview.as_view(), name="overview"),
    path("pools/", fleet.Pools.as_view(), name="pools"),
    path("new/pool/", fleet.PoolCreate.as_view(), name="pool-create"),
    path("pools/<str:name>/", fleet.Pool.as_view(), name="pool"),
    path("pools/<str:name>/delete/", fleet.PoolDelete.as_view(), name="pool-delete"),
    *configs.addresses("pools/<str:name>/", places.POOLS),
    path("guardrails/", policies.Policies.as_view(), name="guardrails"),
    path("guardrails/<str:name>/", policies.Policy.as_view(), name="guardrail"),
    path(
        "new/guardrail/",
        creating.Create.as_view(place=place.POLICIES, starters=place.STARTERS),
        name="guardrail-create",
    ),
    path(
        "guardrails/<str:name>/delete/",
        creating.Delete.as_view(place=place.POLICIES),
        name="guardrail-delete",
    ),
    *configs.addresses("guardrails/<str:name>/", place.POLICIES),
    path("guardrails/<str:name>/try/", policies.TryPolicy.as_view(), name="guardrail-try"),
    path("verdicts/", verdicts.Verdicts.as_view(), name="verdicts"),
    path("verdicts/export/", verdicts.Export.as_view(), name="verdicts-export"),
    path("verdicts/<str:identity>/", verdicts.Verdict.as_view(), name="verdict"),
    path("processors/", processors.Processors.as_view(), name="processors"),
    path(
        "new/processor/",
        creating.Create.as_view(place=places.PROCESSORS, starters=processors.STARTERS),
        name="processor-create",
    ),
    path("processors/<str:name>/", processors.Processor.as_view(), name="processor"),
    path(
        "processors/<str:name>/delete/",
        creating.Delete.as_view(place=places.PROCESSORS),
        name="processor-delete",
    ),
    *configs.addresses("processors/<str:name>/", places.PROCESSORS),
    path("audit/", audit.Audit.as_view(), name="audit"),
    path("audit/<int:number>/", audit.AuditOne.as_view(), name="audit-entry"),
    path("styleguide/", styleguide.Styleguide.as_view(), name="styleguide"),
    path("tenants/", tenancy.Tenants.as_view(), name="tenants"),
    path("new/tenant/", tenancy.TenantCreate.as_view(), name="tenant-create"),
    path("tenants/<str:name>/", tenancy.Tenant.as_view(), name="tenant"),
    path("tenants/<str:name>/keys/<str:key>/revoke/", tenancy.KeyRevoke.as_view(), name="key-revoke"),
]
