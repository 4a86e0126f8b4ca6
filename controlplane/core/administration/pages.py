"""How the admin shows models: what services change, and records that nobody changes."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.db import models
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from controlplane.core import tokens, users
from controlplane.core.administration.forms import DocumentForm, ServiceForm, UserForm, told, version_of
from controlplane.core.administration.site import asker
from controlplane.core.errors import ServiceError
from controlplane.core.kinds import KINDS
from controlplane.core.models import ApiToken, User

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Any]
else:
    _ModelAdmin = admin.ModelAdmin


class Shown(_ModelAdmin):
    """A model that can be looked at. The site lets administrators in alone; services check again."""

    actions = None
    list_per_page = 100
    show_full_result_count = False
    list_select_related = True

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Whether it is on the list of models."""
        return True

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whether it is shown."""
        return True

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Whether there is a form for a new one."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whether there is a form for changes."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whether there is a page that deletes it."""
        return False


class Changed(Shown):
    """A model that a service changes; the audit log is its history."""

    kind: str
    form_type: ClassVar[type[ServiceForm]]
    delete_confirmation_template = "administration/delete.html"

    def name_of(self, row: Any) -> str:
        """What the audit log calls an object."""
        return str(row)

    @abstractmethod
    def remove(self, request: HttpRequest, row: Any) -> None:
        """Delete it by the service."""

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        """The form, which acts for whoever asks."""
        meta = type("Meta", (), {"model": self.model, "fields": ()})
        return type("Form", (self.form_type,), {"Meta": meta, "actor": asker(request)})

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Nothing: no address fills in a form."""
        return {}

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Nothing is left to do: the form has changed it."""

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Nor of what belongs to it."""

    def construct_change_message(
        self, request: HttpRequest, form: Any, formsets: Any, add: bool = False
    ) -> list[Any]:
        """None: the audit log has the change."""
        return []

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        """Not a second time."""

    log_change = log_addition

    def log_deletions(self, request: HttpRequest, queryset: Any) -> Any:
        """Not a second time."""

    def get_deleted_objects(
        self, objs: Any, request: HttpRequest
    ) -> tuple[list[str], dict[str, int], set[str], list[str]]:
        """The object; the service says what else there is to it."""
        return [str(each) for each in objs], {}, set(), []

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """By the service."""
        self.remove(request, obj)

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> Any:
        """Ask, and delete; a refusal is told on the object's page."""
        try:
            return super().delete_view(request, object_id, extra_context)
        except ServiceError as error:
            messages.error(request, "; ".join(told(error)))
            options = self.model._meta
            return redirect(f"admin:{options.app_label}_{options.model_name}_change", unquote(object_id))

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The audit log of the object."""
        row = self.get_object(request, unquote(object_id))
        if row is None:
            return redirect("console:audit")
        asked = urlencode({"kind": self.kind, "name": self.name_of(row)})
        return redirect(f"{reverse('console:audit')}?{asked}")


class ResourceAdmin(Changed):
    """Objects of a kind."""

    form_type = DocumentForm
    list_display = ("name", "version", "created_at", "updated_at")
    search_fields = ("name",)

    def __init__(self, model: type[Any], site: admin.AdminSite) -> None:
        super().__init__(model, site)
        (self.service,) = [service for service in KINDS.all() if service.model is model]
        self.kind = self.service.kind

    def has_add_permission(self, request: HttpRequest) -> bool:
        """The service makes new ones."""
        return True

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """The service changes them."""
        return True

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """The service deletes them."""
        return True

    def get_queryset(self, request: HttpRequest) -> models.QuerySet[Any]:
        """What the service shows."""
        return self.service.rows(asker(request)).order_by("name")

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        """The document's form."""
        form = super().get_form(request, obj, change, **kwargs)
        form.service = self.service
        return form

    def remove(self, request: HttpRequest, row: Any) -> None:
        """The version that was shown."""
        self.service.delete(asker(request), row.name, version_of(request.POST.get("version")))


class UserAdmin(Changed):
    """People; they are disabled, not deleted, since the audit log tells of them."""

    kind = users.KIND
    form_type = UserForm
    list_display = ("username", "role", "is_active", "last_login", "version")
    list_filter = ("role", "is_active")
    search_fields = ("username",)
    ordering = ("username",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Without a password."""
        return True

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Role and access."""
        return True

    def name_of(self, row: User) -> str:
        """The name to log in with."""
        return row.username


class TokenAdmin(Changed):
    """Tokens: shown without themselves, and taken back. They are made where they are shown this once."""

    kind = tokens.KIND
    fields = readonly_fields = (
        "user",
        "name",
        "prefix",
        "created_at",
        "expires_at",
        "last_used_at",
        "bound_to",
        "bound_name",
        "bound_node",
    )
    list_display = ("name", "user", "prefix", "created_at", "expires_at", "last_used_at")
    search_fields = ("name", "prefix", "user__username")
    ordering = ("user__username", "name")

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Deleting it takes it back."""
        return True

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        """Nothing can be filled in."""
        return admin.ModelAdmin.get_form(self, request, obj, change, **kwargs)

    def name_of(self, row: ApiToken) -> str:
        """Whose, and its name."""
        return f"{row.user.username}/{row.name}"

    def remove(self, request: HttpRequest, row: ApiToken) -> None:
        """Take it back."""
        tokens.revoke(asker(request), row.user, row.name)


def records(*columns: str, search: tuple[str, ...] = (), filters: tuple[str, ...] = ()) -> type[Shown]:
    """How a model is shown that has no service: it is written by what happens, and changed by nobody."""

    class Records(Shown):
        list_display = columns
        search_fields = search
        list_filter = filters

        def get_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
            """All columns."""
            return [field.name for field in self.model._meta.concrete_fields]

        def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
            """All of them."""
            return self.get_fields(request, obj)

    return Records
