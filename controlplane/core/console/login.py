"""Logging in and out, and changing one's password."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from controlplane.core import clients, passwords, throttle
from controlplane.core.console.views import ConsoleView
from controlplane.core.errors import InvalidError
from controlplane.core.models import User
from controlplane.core.roles import Role

HELD = (
    "Too many logins have failed. Wait a quarter of an hour, use a browser in which you have logged in "
    "before, or ask an administrator for a new password."
)
WORKERS = "Workers do not log in; they have tokens."
KNOWN = "pointsman-known"
"""Cookie of browsers in which somebody has logged in."""


class LoginForm(AuthenticationForm):
    """Asks the throttle before the password is looked at."""

    source: throttle.Source | None = None

    def clean(self) -> dict[str, Any]:
        """Refuse while too many logins have failed; count failures."""
        username, request = self.cleaned_data.get("username"), self.request
        if not username or not self.cleaned_data.get("password") or request is None:
            return super().clean()
        self.source = source_of(request, username)
        if not throttle.begin(username, self.source):
            raise ValidationError(HELD, code="held")
        cleaned = super().clean()
        throttle.succeeded(username, self.source)
        return cleaned

    def confirm_login_allowed(self, user: Any) -> None:
        """Neither disabled people nor workers."""
        super().confirm_login_allowed(user)
        if user.role == Role.WORKER:
            raise ValidationError(WORKERS, code="worker")


def source_of(request: HttpRequest, username: str) -> throttle.Source:
    """Where somebody's password comes from."""
    return throttle.source_of(username, clients.address_of(request), request.COOKIES.get(KNOWN, ""))


class Login(LoginView):
    """The login page."""

    form_class = LoginForm
    redirect_authenticated_user = True

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        """Log in, and know the browser from now on."""
        answer = super().form_valid(form)
        if isinstance(form, LoginForm) and form.source is not None:
            answer.set_cookie(
                KNOWN,
                throttle.mark_of(form.cleaned_data["username"], form.source),
                max_age=throttle.KNOWN_FOR,
                secure=settings.SESSION_COOKIE_SECURE,
                httponly=True,
                samesite="Lax",
            )
        return answer


class PasswordForm(forms.Form):
    """The old password, and twice the new one."""

    old = forms.CharField(
        label="Present password", widget=forms.PasswordInput(attrs={"autocomplete": "current-password"})
    )
    new = forms.CharField(
        label="New password",
        help_text="At least 12 characters, and none that many people use.",
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )
    again = forms.CharField(
        label="New password again", widget=forms.PasswordInput(attrs={"autocomplete": "new-password"})
    )

    def clean(self) -> dict[str, Any]:
        """Both new ones are the same."""
        found = super().clean() or self.cleaned_data
        if found.get("new") != found.get("again"):
            self.add_error("again", "This is another password than the one above.")
        return found


class Password(ConsoleView):
    """One's own password."""

    def get(self, request: HttpRequest) -> HttpResponse:
        """The form."""
        return self.page("registration/password.html", {"form": PasswordForm()})

    def post(self, request: HttpRequest) -> HttpResponse:
        """Change it; this session goes on, all others of the person end."""
        form, user = PasswordForm(request.POST), request.user
        if form.is_valid() and isinstance(user, User):
            source = source_of(request, user.username)
            if not throttle.begin(user.username, source):
                form.add_error("old", HELD)
            elif not user.check_password(form.cleaned_data["old"]):
                form.add_error("old", "This is not your password.")
            else:
                throttle.succeeded(user.username, source)
                try:
                    passwords.change_own(self.actor, user.username, form.cleaned_data["new"])
                except InvalidError as error:
                    for detail in error.details:
                        form.add_error("new", detail.message)
                else:
                    user.refresh_from_db()
                    update_session_auth_hash(request, user)
                    messages.success(request, "Your password is changed.")
                    return redirect("console:overview")
        return self.page("registration/password.html", {"form": form}, status=422)
