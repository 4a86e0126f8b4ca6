"""Addresses of the console's pages."""

from __future__ import annotations

from django.urls import path, re_path

from controlplane.configs import views as configs
from controlplane.core.console import audit, styleguide
from controlplane.fleet import views as fleet
from controlplane.tenancy import views as tenancy

app_name = "console"
urlpatterns = [
    path("", fleet.Overview.as_view(), name="overview"),
    path("pools/", fleet.Pools.as_view(), name="pools"),
    path("new/pool/", fleet.PoolCreate.as_view(), name="pool-create"),
    path("pools/<str:name>/", fleet.Pool.as_view(), name="pool"),
    path("pools/<str:name>/delete/", fleet.PoolDelete.as_view(), name="pool-delete"),
    path("pools/<str:name>/config/", configs.PoolConfig.as_view(), name="pool-config"),
    path("pools/<str:name>/publish/", configs.Publish.as_view(), name="pool-publish"),
    re_path(
        r"^pools/(?P<name>[^/]+)/rollout/(?P<order>promote|halt|roll-back)/$",
        configs.RolloutAct.as_view(),
        name="rollout-act",
    ),
    path("audit/", audit.Audit.as_view(), name="audit"),
    path("audit/<int:number>/", audit.AuditOne.as_view(), name="audit-entry"),
    path("styleguide/", styleguide.Styleguide.as_view(), name="styleguide"),
    path("tenants/", tenancy.Tenants.as_view(), name="tenants"),
    path("new/tenant/", tenancy.TenantCreate.as_view(), name="tenant-create"),
    path("tenants/<str:name>/", tenancy.Tenant.as_view(), name="tenant"),
    path("tenants/<str:name>/keys/<str:key>/revoke/", tenancy.KeyRevoke.as_view(), name="key-revoke"),
]
