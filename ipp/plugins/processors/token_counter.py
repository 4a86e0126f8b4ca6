"""``token-counter``: has a vLLM server count the tokens of prompts, for limits that are to be exact.

Nothing is asked until somebody needs to know: a guardrail that limits the prompt. The server renders the
prompt with the model's own template and tokenizer while the request waits; what it does not render in time,
or cannot, is estimated.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final
from urllib.parse import urlsplit

import msgspec

from dataplane.config.decode import Duration
from dataplane.errors import ConfigError
from dataplane.payload.json_member import set_member
from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from dataplane.render_client import RenderClient, RenderError
from ipp.interfaces.counting import TokensOf
from ipp.interfaces.handle import Handle
from ipp.interfaces.message import RequestMessage

RENDERED_APIS: Final = ("chat/completions", "completions", "messages", "responses")
"""Ends of paths whose prompts a vLLM server renders, more specific ones first."""


class TokenCounterParams(PluginParams, frozen=True, kw_only=True):
    """Only the URL is required."""

    url: Annotated[str, msgspec.Meta(min_length=1, max_length=2048)]
    """A vLLM server that renders prompts (`vllm launch render`, or `vllm serve --enable-scale-out`)."""
    timeout: Duration = Duration(1.0)
    """How long a request waits for it."""
    model_name: Annotated[str, msgspec.Meta(max_length=256)] = ""
    """Model the server is asked for; empty = the request's own."""

    def __post_init__(self) -> None:
        if not 0.001 <= self.timeout <= 60:
            raise ConfigError("must be from 1ms to 1m", path="timeout")
        try:
            parts = urlsplit(self.url)
            is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # a port that is no number
            is_url = False
        if not is_url or parts.query or parts.fragment or not self.url.isprintable():
            raise ConfigError("is no address of a server; write http://host:port", path="url")


class _Prompt(msgspec.Struct, gc=False):
    """A prompt as the server renders it, as far as it is read."""

    token_ids: list[int]


_read: Final = msgspec.json.Decoder(_Prompt | list[_Prompt])


class TokenCounter:
    """Stands before the plugins that need to know."""

    info: ClassVar = PluginInfo("token-counter", TokenCounterParams)
    needs_request_body: ClassVar[bool] = True

    def __init__(self, name: TypedName, params: TokenCounterParams, handle: Handle) -> None:
        self.name = name
        self._timeout_s = float(params.timeout)
        self._model = params.model_name
        self._client = RenderClient(params.url, handle.clock)
        self._outcomes = {
            outcome: handle.metrics.token_counts.child(outcome)
            for outcome in ("counted", "failed", "skipped")
        }
        self._last_failure = ""

    def process_request(self, request: RequestMessage) -> None:
        """Be there for those who need to know."""
        request.state[TokensOf] = self

    async def count_tokens(self, request: RequestMessage) -> int | None:
        """Ask the server; several prompts of a request count together."""
        path = _render_path(request.headers.get(":path"))
        if path is None or not request.is_json or not self._client.may_ask(path):
            self._outcomes["skipped"].inc()
            return None
        body = request.body
        try:
            if self._model and self._model != request.model:
                body = set_member(body, "model", self._model, is_string="model" in request.members)
            found = _read.decode(await self._client.ask(path, body, self._timeout_s))
        except (RenderError, ValueError, RecursionError) as error:
            self._outcomes["failed"].inc()
            self._last_failure = f"{path}: {error}"[:500]
            return None
        self._outcomes["counted"].inc()
        prompts = found if isinstance(found, list) else [found]
        return sum(len(prompt.token_ids) for prompt in prompts)

    async def start(self) -> None:
        """Connections are opened when they are needed."""

    async def close(self) -> None:
        """Close them."""
        await self._client.close()

    def dump_state(self) -> dict[str, Any]:
        """How things stand with the server."""
        return {**self._client.describe(), "lastFailure": self._last_failure}


def _render_path(path: str) -> str | None:
    """Where the server renders prompts of requests to this path; None when it does not."""
    plain = path.partition("?")[0].rstrip("/")
    return next((f"/v1/{api}/render" for api in RENDERED_APIS if plain.endswith(f"/{api}")), None)
