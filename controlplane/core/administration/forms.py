"""Forms of the admin: what is posted is handed to a service, and what it refuses is an error of the form.

Only the service can say whether a change is good, so it is asked last in a form's validation, and the change
is made then. A form that is not valid has changed nothing.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Final

import yaml
from django import forms
from django.db import models, transaction

from controlplane.core import users
from controlplane.core.errors import InvalidError, ServiceError, UnversionedError
from controlplane.core.kinds import Service
from controlplane.core.models import User
from controlplane.core.resources import Document
from controlplane.core.roles import Actor, Role
from dataplane.config.document import MAX_DOCUMENT_BYTES, read_document
from dataplane.errors import ConfigError

if TYPE_CHECKING:
    _ModelForm = forms.ModelForm[Any]
else:
    _ModelForm = forms.ModelForm

MAX_DIGITS: Final = 18
SECRET: Final = "secret"  # noqa: S105 - what specs call a field that is not shown again


def version_of(text: str | None) -> int:
    """The version a page was made of. ``UnversionedError`` when it says none."""
    if text and text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS:
        return int(text)
    raise UnversionedError("the form does not say which version it changes; load its page again")


def told(error: ServiceError) -> list[str]:
    """Every reason of a refusal, with its place."""
    parts = [f"{part.path}: {part.message}" if part.path else part.message for part in error.details]
    return parts or [error.message]


class ServiceForm(_ModelForm):
    """A form whose last check is the change itself."""

    actor: ClassVar[Actor]
    place: ClassVar[str] = "__all__"
    """The field at which refusals are told."""
    version = forms.CharField(widget=forms.HiddenInput, required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk is not None:
            self.initial.update({"version": self.instance.version, **self.shown(self.instance)})

    @abstractmethod
    def shown(self, row: Any) -> dict[str, Any]:
        """What the fields say of an object."""

    @abstractmethod
    def change(self, said: dict[str, Any], row: Any | None, version: int) -> models.Model:
        """Make the change, of ``row`` or a new one, by the service."""

    def _post_clean(self) -> None:
        """Where Django builds the row and checks it; the service does both."""
        if self.errors:
            return
        said = self.cleaned_data
        try:
            with transaction.atomic():
                if self.instance.pk is None:
                    self.instance = self.change(said, None, 0)
                else:
                    self.instance = self.change(said, self.instance, version_of(said["version"]))
        except ServiceError as error:
            for reason in told(error):
                self.add_error(None if self.place == "__all__" else self.place, reason)

    def save(self, commit: bool = True) -> Any:
        """The row, which is written already."""
        return self.instance


class DocumentForm(ServiceForm):
    """An object of any kind as its document."""

    service: ClassVar[Service]
    place = "document"
    document = forms.CharField(
        strip=False,
        max_length=MAX_DOCUMENT_BYTES,
        help_text="YAML, as it is applied and exported.",
        widget=forms.Textarea(
            attrs={"rows": 28, "cols": 100, "class": "vLargeTextField document", "spellcheck": "false"}
        ),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk is None:
            empty = {"apiVersion": self.service.versions[0], "kind": self.service.kind}
            self.initial["document"] = _text({**empty, "metadata": {"name": ""}})

    def shown(self, row: Any) -> dict[str, Any]:
        """The document, without what the control plane adds."""
        document = self.service.document(row)
        document.pop("status", None)
        document["metadata"].pop("resourceVersion")
        return {"document": _text(document)}

    def change(self, said: dict[str, Any], row: Any | None, version: int) -> models.Model:
        """What the document says."""
        problems: list[ConfigError] = []
        document = read_document(said["document"], problems)
        if not problems and not isinstance(document, dict):
            problems.append(ConfigError("must be one document: apiVersion, kind, metadata, and what it says"))
        if problems:
            raise InvalidError.of(problems)
        try:
            return self._hand_over(document, row, version)
        except ServiceError:
            self._hide_secret(document)
            raise

    def _hand_over(self, document: Document, row: Any | None, version: int) -> models.Model:
        if row is None:
            made: models.Model = self.service.create(self.actor, document)
            return made
        changed: models.Model = self.service.update(self.actor, row.name, document, version)
        return changed

    def _hide_secret(self, document: Document) -> None:
        """Show a refused document again without its secret, which has to be said anew."""
        spec = document.get("spec")
        if isinstance(spec, dict) and SECRET in spec:
            rest = {key: value for key, value in spec.items() if key != SECRET}
            posted = {name: self.data[name] for name in self.data}  # one value of each, not all
            self.data = {**posted, "document": _text({**document, "spec": rest})}


class UserForm(ServiceForm):
    """Somebody, and what he may do."""

    username = forms.CharField(max_length=users.MAX_USERNAME)
    role = forms.ChoiceField(choices=[(role, role) for role in Role], initial=Role.VIEWER)
    active = forms.BooleanField(
        required=False, initial=True, help_text="Without it tokens, sessions and streams end at once."
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["username"].disabled = self.instance.pk is not None

    def shown(self, row: User) -> dict[str, Any]:
        """Name, role and access."""
        return {"username": row.username, "role": row.role, "active": row.is_active}

    def change(self, said: dict[str, Any], row: User | None, version: int) -> User:
        """Let somebody in, or change role and access."""
        role, active = Role(said["role"]), said["active"]
        if row is not None:
            return users.change(self.actor, row.username, role=role, active=active, version=version)
        made = users.create(self.actor, said["username"], role)
        return made if active else users.change(self.actor, made.username, active=False)


def _text(document: Document) -> str:
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100)
