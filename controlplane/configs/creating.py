"""Pages on which configurations are made and deleted, whatever their kind, with something to begin from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from controlplane.configs.places import PROCESSORS, Place
from controlplane.configs.views import ConfigPage, is_trial, number_of, with_comment
from controlplane.core.console import texts
from controlplane.core.console.views import ConsoleView
from controlplane.core.errors import ForbiddenError, ServiceError
from controlplane.core.roles import Action, require


@dataclass(frozen=True, slots=True)
class Starter:
    """A document to begin from."""

    key: str
    title: str
    what: str
    """What it does, in a sentence."""
    text: str


class Create(ConsoleView):
    """A new configuration, as a first revision that nobody runs before it is published."""

    place: Place = PROCESSORS
    starters: Sequence[Starter] = ()

    def get(self, request: HttpRequest) -> HttpResponse:
        """The editor with the starter that is asked for, or the first."""
        require(self.actor, Action.WRITE, self.place.service.kind)
        asked = request.GET.get("from", "")
        chosen = next((each for each in self.starters if each.key == asked), self.starters[0])
        return self._editor(text=chosen.text, chosen=chosen.key, **self.place.pane(self.actor, None))

    def post(self, request: HttpRequest) -> HttpResponse:
        """Check the text, or make what it says."""
        require(self.actor, Action.WRITE, self.place.service.kind)
        text, comment = request.POST.get("text", ""), request.POST.get("comment", "")
        pane = self.place.pane(self.actor, request.POST.dict())
        if is_trial(request, self.place):
            return self.page(self.place.pane_template, pane)
        said: dict[str, Any] = {"text": text, "comment": comment, **pane}
        if request.POST.get("do") == "try":
            return self._editor(**said)
        service = self.place.service()
        try:
            document = with_comment(texts.read(text), comment)
            if request.POST.get("do") == "check":
                found = service.judge(document).spec.content
                return self._editor(**said, checked={"warnings": found.warnings})
            row = service.create(self.actor, document)
        except ForbiddenError:
            raise
        except ServiceError as error:
            return self._editor(422, **said, problems=texts.problems_of(error, text))
        messages.success(request, f"{row.name} is made. Publish its revision 1 to use it.")
        return redirect(self.place.addresses(row.name).config)

    def _editor(self, status: int = 200, **said: Any) -> HttpResponse:
        context = {
            "kind": self.place.service.kind,
            "starters": self.starters,
            "back": self.place.listed(),
            "noun": self.place.noun,
            "title": self.place.title,
            "comment": "",
        }
        return self.page(self.place.create_template, context | said, status=status)


class Delete(ConfigPage):
    """Deletes a configuration whose name is typed."""

    def get(self, request: HttpRequest, name: str) -> HttpResponse:
        """What will go, and the field for the name."""
        row = self.row(name)
        require(self.actor, Action.WRITE, row.kind)
        return self._page(name)

    def post(self, request: HttpRequest, name: str) -> HttpResponse:
        """Delete it, as it was shown."""
        row = self.row(name)
        require(self.actor, Action.WRITE, row.kind)
        if request.POST.get("typed") != name:
            return self._page(name, wrong="This is not its name; nothing was deleted.", status=422)
        self.place.service().delete(self.actor, row.name, number_of(request.POST.get("version", "")))
        messages.success(request, f"{name} is deleted.")
        return redirect(self.place.listed())

    def _page(self, name: str, wrong: str = "", status: int = 200) -> HttpResponse:
        row = self.row(name)
        context = {
            "wrong": wrong,
            "back": self.place.listed(),
            "noun": self.place.noun,
            "title": self.place.title,
            "goes": self.place.goes,
        }
        return self.page("configs/delete.html", self.framed(name, row) | context, status=status)
