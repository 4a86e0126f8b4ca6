"""Pages of tenants and their keys. A key's text is on the page that answers its making, and nowhere else."""

from __future__ import annotations

from typing import Any, Final

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from controlplane.core.console.views import ConsoleView
from controlplane.core.errors import Detail, ForbiddenError, MissingError, ServiceError
from controlplane.core.roles import Action
from controlplane.tenancy.models import Tenant as TenantRow
from controlplane.tenancy.models import VirtualKey
from controlplane.tenancy.services import TENANT, VERSIONS, VIRTUAL_KEY, TenantService, VirtualKeyService

MAX_SHOWN: Final = 200


class TenantForm(forms.Form):
    """A tenant with its limits."""

    name = forms.CharField(max_length=63, help_text="Lower-case letters, digits and hyphens.")
    display_name = forms.CharField(label="Shown as", max_length=200, required=False)
    requests_per_minute = forms.IntegerField(
        label="Requests per minute", min_value=1, required=False, help_text="Empty: no limit."
    )
    tokens_per_minute = forms.IntegerField(
        label="Tokens per minute", min_value=1, required=False, help_text="Empty: no limit."
    )

    def document(self) -> dict[str, Any]:
        """What it says."""
        said = self.cleaned_data
        limits = {
            "requestsPerMinute": said["requests_per_minute"],
            "tokensPerMinute": said["tokens_per_minute"],
        }
        spec: dict[str, Any] = {"limits": {key: value for key, value in limits.items() if value is not None}}
        if said["display_name"]:
            spec["displayName"] = said["display_name"]
        if not spec["limits"]:
            del spec["limits"]
        return {"apiVersion": VERSIONS[0], "kind": TENANT, "metadata": {"name": said["name"]}, "spec": spec}


class KeyForm(forms.Form):
    """A key."""

    name = forms.CharField(label="Name of the key", max_length=63)


class Tenants(ConsoleView):
    """All tenants."""

    def get(self, request: HttpRequest) -> HttpResponse:
        """The list."""
        rows = list(TenantService().rows(self.actor).order_by("name")[:MAX_SHOWN])
        keys = VirtualKey.objects.filter(tenant__in=[row.name for row in rows]).values_list(
            "tenant", flat=True
        )
        counts: dict[str, int] = {}
        for tenant in keys:
            counts[tenant] = counts.get(tenant, 0) + 1
        shown = [{"row": row, "keys": counts.get(row.name, 0)} for row in rows]
        may_write = self.actor.may(Action.WRITE, TENANT)
        return self.page("tenancy/tenants.html", {"tenants": shown, "may_write": may_write})


class TenantCreate(ConsoleView):
    """A new tenant."""

    def get(self, request: HttpRequest) -> HttpResponse:
        """The form."""
        return self.page("tenancy/tenant_create.html", {"form": TenantForm()})

    def post(self, request: HttpRequest) -> HttpResponse:
        """Make it."""
        form = TenantForm(request.POST)
        problems: list[Detail] = []
        if form.is_valid():
            try:
                row = TenantService().create(self.actor, form.document())
            except ForbiddenError:
                raise
            except ServiceError as error:
                problems = error.details or [Detail("", error.message)]
            else:
                messages.success(request, f"{row.name} is made. Give it a key.")
                return redirect("console:tenant", row.name)
        return self.page("tenancy/tenant_create.html", {"form": form, "problems": problems}, status=422)


class Tenant(ConsoleView):
    """One tenant and its keys; a post makes a key."""

    def get(self, request: HttpRequest, name: str) -> HttpResponse:
        """The page."""
        return self._show(TenantService().get(self.actor, name), KeyForm())

    def post(self, request: HttpRequest, name: str) -> HttpResponse:
        """Make a key and show it this once."""
        tenant = TenantService().get(self.actor, name)
        form = KeyForm(request.POST)
        if not form.is_valid():
            return self._show(tenant, form, status=422)
        document = {
            "apiVersion": VERSIONS[0],
            "kind": VIRTUAL_KEY,
            "metadata": {"name": form.cleaned_data["name"]},
            "spec": {"tenant": name},
        }
        try:
            _, shown = VirtualKeyService().post(self.actor, document)
        except ForbiddenError:
            raise
        except ServiceError as error:
            problems = error.details or [Detail("", error.message)]
            return self._show(tenant, form, problems=problems, status=422)
        answer = self._show(tenant, KeyForm(), key=shown["status"]["key"])
        answer["Cache-Control"] = "no-store"
        return answer

    def _show(self, tenant: TenantRow, form: KeyForm, status: int = 200, **more: Any) -> HttpResponse:
        service = VirtualKeyService()
        rows = service.rows(self.actor).filter(tenant=tenant.name).order_by("name")[:MAX_SHOWN]
        keys = [{"row": row, "state": service.status_of(row)["state"]} for row in rows]
        may_write = self.actor.may(Action.WRITE, TENANT)
        context = {"tenant": tenant, "keys": keys, "form": form, "may_write": may_write, **more}
        return self.page("tenancy/tenant.html", context, status=status)


class KeyRevoke(ConsoleView):
    """Ends a key for ever."""

    def post(self, request: HttpRequest, name: str, key: str) -> HttpResponse:
        """Revoke it. ``MissingError`` when it is another tenant's."""
        service = VirtualKeyService()
        if service.get(self.actor, key).tenant != name:
            raise MissingError(f"{name} has no key {key}")
        service.revoke(self.actor, key)
        messages.success(request, f"{key} holds no more.")
        return redirect("console:tenant", name)
