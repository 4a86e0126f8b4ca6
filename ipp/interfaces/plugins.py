"""The extension points of a payload processor.

A request passes the pre-processing plugins, then the profile picker names one profile, whose request plugins
run before the model server and whose response plugins after it; post-processing comes last. All are plain
functions on the event loop; one that has to wait returns an awaitable.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Sequence
from typing import ClassVar, Protocol, runtime_checkable

from dataplane.extproc.events import BodyTransform
from dataplane.extproc.exchange import Ending
from dataplane.plugin.base import TypedName
from ipp.interfaces.message import RequestMessage, ResponseMessage


@runtime_checkable
class RequestProcessor(Protocol):
    """Reads or changes a request. A ``RequestError`` ends it."""

    name: TypedName
    needs_request_body: ClassVar[bool]
    """Whether the body must be complete before it runs. A processor nobody of which needs it buffers none."""

    def process_request(self, request: RequestMessage) -> Awaitable[None] | None: ...


@runtime_checkable
class Conditional(Protocol):
    """A plugin that may have nothing to do with any exchange that begins now.

    It is asked when an exchange begins. One that is idle is left out of it altogether, request and response,
    and is not what makes the processor wait for a body.
    """

    @property
    def is_idle(self) -> bool: ...


@runtime_checkable
class Choosy(Protocol):
    """A plugin for responses that may tell from the request that it has nothing to do with its response."""

    def sees_response(self, request: RequestMessage) -> bool:
        """Whether ``process_response`` is to be called."""
        ...


@runtime_checkable
class ResponseProcessor(Protocol):
    """Changes a response's headers, and says what its body passes through."""

    name: TypedName

    def process_response(self, request: RequestMessage, response: ResponseMessage) -> BodyTransform | None:
        """None = the body passes untouched, and as far as this plugin goes unseen."""
        ...


@runtime_checkable
class AnswerGuardian(ResponseProcessor, Protocol):
    """Has to see answers to requests without a body too, of which no profile is picked."""

    def expect_answer(self, request: RequestMessage) -> None:
        """Such a request goes on; its headers may be changed. A ``RequestError`` ends it."""
        ...


@runtime_checkable
class BodyGuardian(RequestProcessor, Protocol):
    """Has to see what requests say; there are gateways that show no bodies."""

    def refuse_unseen(self, request: RequestMessage) -> None:
        """The request has a body that nobody has seen. ``RequestError`` where that may not pass."""
        ...


@runtime_checkable
class ModelNaming(RequestProcessor, Protocol):
    """Says by which model, or base model, a request is served: guardrails before it do not know."""

    names_models: ClassVar[bool]


@runtime_checkable
class ProfilePicker(Protocol):
    """Chooses the profile of a request among those that are configured."""

    name: TypedName
    needs_request_body: ClassVar[bool]

    def pick(self, request: RequestMessage, profiles: Collection[str]) -> str:
        """The name of one of them."""
        ...

    def named_profiles(self) -> Sequence[tuple[str, str]]:
        """Profiles that parameters name, with the parameter's path; each must exist."""
        ...


@runtime_checkable
class FixedPicker(Protocol):
    """A picker that takes the same profile for every request, so that nobody needs to ask."""

    def always(self, profiles: Collection[str]) -> str:
        """The name of one of them."""
        ...


@runtime_checkable
class HeaderOwner(Protocol):
    """Writes headers that decide where a request goes: those a client sends itself are taken away."""

    def owned_headers(self) -> Collection[str]: ...


@runtime_checkable
class ExchangeObserver(Protocol):
    """Hears once that an exchange whose request it processed is over, whatever happened."""

    def exchange_ended(self, request: RequestMessage, ending: Ending) -> None: ...


@runtime_checkable
class Running(Protocol):
    """A plugin with work of its own beside requests."""

    async def start(self) -> None:
        """Begin. ``ConfigError`` for what an operator must mend; then the configuration is not used."""
        ...

    async def close(self) -> None:
        """End, in any state."""
        ...
