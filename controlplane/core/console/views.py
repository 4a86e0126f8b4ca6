"""What all pages of the console have in common: who asks, the menu, and what is said when a service refuses.

Pages hold no rules. They ask the services that the API asks, as the person who is logged in.
"""

from __future__ import annotations

from typing import Any, Final

from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.views import View

from controlplane.core import requests
from controlplane.core.console import navigation
from controlplane.core.errors import ServiceError
from controlplane.core.history import AUDIT_ENTRY
from controlplane.core.models import User
from controlplane.core.roles import Action, Actor, Channel, Role

FAILED_FROM: Final = 400
"""Pages with such a status say which request they answer."""


def actor_of(user: User, channel: Channel = Channel.CONSOLE) -> Actor:
    """The person as services know people."""
    return Actor(user.username, Role(user.role), channel, user.pk)


class ConsoleView(View):
    """A page for people who are logged in."""

    actor: Actor

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Ask for a login first; a service's refusal becomes a page that says it."""
        if not isinstance(request.user, User):
            return redirect_to_login(request.get_full_path())
        self.actor = actor_of(request.user)
        try:
            return super().dispatch(request, *args, **kwargs)
        except ServiceError as error:
            return self.refused(error)

    @property
    def is_part(self) -> bool:
        """Whether htmx asks for what is live on the page, instead of all of it."""
        return self.request.headers.get("HX-Request") == "true"

    def page(self, template: str, context: dict[str, Any] | None = None, status: int = 200) -> HttpResponse:
        """A whole page, or a part of one."""
        shared = {
            "actor": self.actor,
            "is_part": self.is_part,
            "navigation": navigation.entries(self.actor, self.request.path),
            "may_audit": self.actor.may(Action.READ, AUDIT_ENTRY),
            "may_write": self.actor.may(Action.WRITE, "InferencePool"),
            "request_id": requests.current() if status >= FAILED_FROM else "",
        }
        return render(self.request, template, {**shared, **(context or {})}, status=status)

    def refused(self, error: ServiceError) -> HttpResponse:
        """What a service said no to, with its reasons."""
        return self.page("core/refused.html", {"error": error}, status=error.status)
