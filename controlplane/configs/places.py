"""Where on the console each kind of configuration is changed and rolled out.

Pages are the same for all kinds (``controlplane.configs.views``); a place says how a page's name leads to a
document and what stands around it. One more kind is one more place, and a line in the console's addresses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from django.urls import reverse

from controlplane.configs import rollouts
from controlplane.configs.models import ConfigDocument, PoolBinding
from controlplane.configs.services import ConfigService, PickerConfigService, ProcessorConfigService
from controlplane.configs.subjects import Subject
from controlplane.core.errors import MissingError
from controlplane.core.roles import Action, Actor, require
from controlplane.fleet.services import PoolService

ORDERS: Final = ("promote", "halt", "roll-back")
"""To a rollout."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """Of the pages of one document."""

    config: str
    publish: str
    promote: str
    halt: str
    roll_back: str


class Place(ABC):
    """Of one kind of configuration."""

    service: ClassVar[type[ConfigService]]
    key: ClassVar[str]
    """What names of its addresses begin with: ``pool`` for ``pool-config``."""
    template: ClassVar[str] = "configs/editor.html"
    create_template: ClassVar[str] = "configs/create.html"
    pane_template: ClassVar[str] = ""
    """Template of what came of trying a draft; empty = drafts cannot be tried."""
    base: ClassVar[str]
    """Template of what stands around the page."""
    title: ClassVar[str]
    """Of the list of all."""
    noun: ClassVar[str]
    """What people call one of them."""
    goes: ClassVar[str] = ""
    """What follows when one is deleted, in words; empty = it has no page for that."""

    @property
    def subject(self) -> Subject:
        """The kind."""
        return self.service.subject

    @abstractmethod
    def document(self, actor: Actor, name: str) -> ConfigDocument:
        """The document a page is about. ``MissingError`` when there is none."""

    @abstractmethod
    def around(self, actor: Actor, name: str, row: ConfigDocument) -> dict[str, Any]:
        """What ``base`` shows."""

    @abstractmethod
    def whose(self, name: str, row: ConfigDocument) -> str:
        """Whose workers run it, in words."""

    def pane(self, actor: Actor, posted: Mapping[str, str] | None) -> dict[str, Any]:
        """What stands beside the editor besides; of a form that was posted, what it says there."""
        return {}

    def listed(self) -> str:
        """Address of the list of all."""
        return reverse(f"console:{self.key}s")

    def addresses(self, name: str) -> Addresses:
        """Of the pages of this name."""
        promote, halt, roll_back = (reverse(f"console:{self.key}-rollout", args=[name, o]) for o in ORDERS)
        return Addresses(
            config=reverse(f"console:{self.key}-config", args=[name]),
            publish=reverse(f"console:{self.key}-publish", args=[name]),
            promote=promote,
            halt=halt,
            roll_back=roll_back,
        )

    def revision(self, name: str, number: int) -> str:
        """Address of one revision."""
        return reverse(f"console:{self.key}-revision", args=[name, number])


class PoolPlace(Place):
    """A pool's page leads to the configuration that lists the pool."""

    service = PickerConfigService
    key = "pool"
    base = "fleet/pool_base.html"
    title = "Pools"
    noun = "pool"

    def document(self, actor: Actor, name: str) -> ConfigDocument:
        """The one of the pool."""
        require(actor, Action.READ, self.service.kind)
        binding = PoolBinding.objects.select_related("document__active").filter(pool=name).first()
        if binding is None:
            raise MissingError(f"no configuration is for the pool {name}; apply one to change it here")
        return binding.document

    def around(self, actor: Actor, name: str, row: ConfigDocument) -> dict[str, Any]:
        """The pool."""
        return {"pool": PoolService().get(actor, name)}

    def whose(self, name: str, row: ConfigDocument) -> str:
        """Its pools."""
        return f"of {', '.join(row.pools)}"


class ProcessorPlace(Place):
    """A payload processor's page is the one of its configuration."""

    service = ProcessorConfigService
    key = "processor"
    base = "configs/processor_base.html"
    title = "Processors"
    noun = "payload processor"
    goes = (
        "The configuration goes with its revisions. Processors of this name go back to the one that they "
        "were started with, which may enforce nothing."
    )

    def document(self, actor: Actor, name: str) -> ConfigDocument:
        """The one of this name."""
        require(actor, Action.READ, self.service.kind)
        return rollouts.found(name, self.service.kind)

    def around(self, actor: Actor, name: str, row: ConfigDocument) -> dict[str, Any]:
        """The processor."""
        return {"processor": row}

    def whose(self, name: str, row: ConfigDocument) -> str:
        """The processor's replicas."""
        return f"of {name}"


POOLS: Final = PoolPlace()
PROCESSORS: Final = ProcessorPlace()
