"""How far the two halves of an exchange are, for the session's state machine.

The members are bound to module constants as well: looking one up on its class costs as much as a call, and
the session does so several times per chunk.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class ProtocolError(Exception):
    """The peer sent a message that cannot come at this point of a stream."""


class RequestPhase(IntEnum):
    """How far the request is. Response events are legal in every phase."""

    START = 0
    COLLECTING = 1
    """The exchange needs the body and it is not complete."""
    DECIDING = 2
    """The exchange has the request and will resume."""
    PASSING = 3
    """Answered; what still comes of the body passes through."""
    ENDED = 4
    """Answered and complete. A repeated end is ignored."""
    VOID = 5
    """Rejected, overtaken by its response, or closed: nothing more is said about it."""


class ResponsePhase(IntEnum):
    """How far the response is. It may begin without its headers, when Envoy is configured to skip them."""

    AWAITED = 0
    OPEN = 1
    COMPLETE = 2
    """Seen to its end. A repeated end is ignored."""
    HELD = 4
    """Seen to its end, which waits for the last bytes."""
    VOID = 3
    """Replaced by an immediate response, or closed: nothing more is said about it."""


START: Final = RequestPhase.START
COLLECTING: Final = RequestPhase.COLLECTING
DECIDING: Final = RequestPhase.DECIDING
PASSING: Final = RequestPhase.PASSING
ENDED: Final = RequestPhase.ENDED
VOID: Final = RequestPhase.VOID
RESPONSE_AWAITED: Final = ResponsePhase.AWAITED
RESPONSE_OPEN: Final = ResponsePhase.OPEN
RESPONSE_COMPLETE: Final = ResponsePhase.COMPLETE
RESPONSE_HELD: Final = ResponsePhase.HELD
RESPONSE_VOID: Final = ResponsePhase.VOID
