"""One inference request on its way through the picker, and what is said about it.

Owned by the director from parse to the end of the response; plugins read it and add attributes.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from dataplane.headers import Headers
from dataplane.payload.token_usage import Usage
from dataplane.plugin.base import DataKey

if TYPE_CHECKING:
    from epp.interfaces.spans import RequestSpans
    from epp.interfaces.trace import DecisionTrace

T = TypeVar("T")


class MediaKind(StrEnum):
    """What a part of a prompt that is no text is."""

    IMAGE = "image"
    AUDIO = "audio"
    VIDEO = "video"
    FILE = "file"


class Medium(msgspec.Struct):
    """One part of a prompt that is no text. What is not known of it is 0."""

    kind: MediaKind
    digest: str
    """Sixteen hexadecimal digits, the same for the same address or data; they stand in ``prompt_text``."""
    offset: int = 0
    """Where in ``prompt_text`` the digest begins, in bytes; of no meaning in a prompt of tokens."""
    tokens: int = 0
    """Tokens it takes in a prompt of tokens."""
    size: int = 0
    """Bytes of the data that came with the request; 0 = it is named by an address."""
    width: int = 0
    """Of an image, in pixels."""
    height: int = 0
    seconds: float = 0.0
    """Length of an audio clip."""


class ModelUse(IntEnum):
    """What it means when a request names no model."""

    NONE = 0
    """Nothing: the API has none, or it is named elsewhere. None is ever supplied."""
    OPTIONAL = 1
    """The model server has a default; an operator's rule may supply another."""
    REQUIRED = 2
    """The request is refused, unless a rule supplies one."""


class ParsedBody(msgspec.Struct):
    """What a parser understands of a request body, which parsing never changes."""

    model: str = ""
    stream: bool = False
    prompt_text: bytes = b""
    """UTF-8 text of the prompt in chat template order; empty when ``prompt_tokens`` is set."""
    prompt_tokens: list[int] | None = None
    """Token ids, when the client sent a token array."""
    batch: list[bytes] | None = None
    """Texts of a batched prompt; each is a prompt of its own."""
    max_output_tokens: int | None = None
    cache_salt: str = ""
    media: list[Medium] | None = None
    """Parts of the prompt that are no text; of ``prompt_text`` in their order. None when there are none."""
    model_use: ModelUse = ModelUse.NONE


class InferenceRequest:
    """A request as plugins see it."""

    __slots__ = (
        "attributes",
        "body",
        "fairness_id",
        "headers",
        "model",
        "new_body",
        "objective",
        "parsed",
        "path",
        "priority",
        "received_at",
        "request_id",
        "spans",
        "stage",
        "target_model",
        "trace",
    )

    def __init__(
        self,
        request_id: str,
        path: str,
        headers: Headers,
        body: bytes,
        parsed: ParsedBody,
        received_at: float,
    ) -> None:
        self.request_id = request_id
        """As the client or Envoy named it. Not unique: never a key of internal state."""
        self.path = path
        self.headers = headers
        self.body = body
        self.parsed = parsed
        self.model = parsed.model
        self.target_model = parsed.model
        """What the model servers are asked for."""
        self.new_body: bytes | None = None
        """What is sent instead of ``body``, until it is on its way; None = ``body`` as it came."""
        self.objective = ""
        self.priority = 0
        self.fairness_id = "default-flow"
        self.received_at = received_at
        """Monotonic seconds at which the last byte of the body was here."""
        self.attributes: dict[DataKey[Any], Any] = {}
        self.stage = "parse"
        """Where in the director's order it is, or was when it was refused."""
        self.trace: DecisionTrace | None = None
        """Collects what its decision is based on, when somebody is to see that."""
        self.spans: RequestSpans | None = None
        """Its spans, if they are recorded."""

    def get(self, key: DataKey[T]) -> T | None:
        """The value a producer left under ``key``."""
        return self.attributes.get(key)

    def put(self, key: DataKey[T], value: T) -> None:
        """Leave a value for consumers."""
        self.attributes[key] = value


class ResponseSummary(msgspec.Struct):
    """What is known when a response has ended, for whatever reason."""

    status: int = 0
    """HTTP status of the model server; 0 when no response headers came."""
    streaming: bool = False
    usage: Usage | None = None
    served: str = ""
    """``ip:port`` that Envoy says served it; empty when it does not say."""
    cause: str = "natural"
    """natural, client-disconnect, error."""
    ttft_s: float | None = None
    """Seconds from receipt to the first response body bytes."""
    duration_s: float = 0.0
    response_bytes: int = 0
    events: int = 0
    """Server-sent data events other than [DONE]; 0 for a plain response."""

    @property
    def tokens(self) -> tuple[int | None, int | None, int | None]:
        """Prompt, cached and generated tokens as the model server reports them."""
        usage = self.usage or Usage()
        return usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens
