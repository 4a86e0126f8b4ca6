"""Django's own admin: the plain way to every object there is, for administrators alone.

It asks the services like every other door, as the channel ``admin``. Logging in and passwords are the
console's; what was changed is told by the audit log, and Django's own log of the admin stays empty.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any

from django.conf import settings
from django.contrib.admin import AdminSite
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect

from controlplane.core.console.views import actor_of
from controlplane.core.models import User
from controlplane.core.roles import Actor, Channel, Role


def asker(request: HttpRequest) -> Actor:
    """Who asks, as services know people. ``PermissionDenied`` for whoever is not logged in."""
    if not isinstance(request.user, User):
        raise PermissionDenied
    return actor_of(request.user, Channel.ADMIN)


class AdministrationSite(AdminSite):
    """All pages of the admin."""

    site_header = site_title = "Pointsman administration"
    index_title = "Objects, people and records"

    def has_permission(self, request: HttpRequest) -> bool:
        """Administrators; what Django calls staff and superusers means nothing here."""
        user = request.user
        return isinstance(user, User) and user.is_active and user.role == Role.ADMIN

    def admin_view(self, view: Callable[..., HttpResponseBase], cacheable: bool = False) -> Any:
        """Others are refused, and strangers asked to log in."""
        inner = super().admin_view(view, cacheable)

        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if self.has_permission(request):
                return inner(request, *args, **kwargs)
            if request.user.is_authenticated:
                raise PermissionDenied("the administration is for administrators")
            return redirect_to_login(request.get_full_path())

        return update_wrapper(guarded, view)

    def login(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """The console's page."""
        return redirect(settings.LOGIN_URL)

    def password_change(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        """The console's page, which goes through the service."""
        return redirect("password")
