"""Under which name a request asks the model servers for its model, and how the client gets its own name back.

The model a client names is looked up in the rules of the pool's model rewrites; a rule decides, else the
rewrite header does. Where that gives another name, the model in the body is replaced in the bytes as they
came, and a rewriter is laid on the response that puts the client's name back. Requests that neither a rule
nor the header concerns pay one look-up for each.

A response is rewritten only where its bytes can be read, so a model server is asked not to compress it. One
that is compressed all the same, or neither JSON nor an event stream, passes as it is.
"""

from __future__ import annotations

import logging
import random
from typing import Final

from dataplane.clock import Clock
from dataplane.errors import BadRequestError
from dataplane.extproc.events import BodyTransform
from dataplane.headers import ACCEPT_ENCODING, CONTENT_ENCODING, MODEL_NAME_REWRITE, Headers
from epp.interfaces.request import InferenceRequest, ModelUse
from epp.interfaces.request_control import ModelNameRewriter, Parser
from epp.metrics import EppMetrics
from epp.objects.model import MAX_MODEL_NAME_BYTES
from epp.objects.snapshot import NO_OBJECTS, ObjectHolder, PoolObjects

log = logging.getLogger(__name__)

WARNING_INTERVAL_S: Final = 600.0
"""A parser that cannot rewrite names is complained of this often at most."""


class ModelNames:
    """Gives requests the names of their models, for one director."""

    def __init__(self, objects: ObjectHolder, rng: random.Random, metrics: EppMetrics, clock: Clock) -> None:
        self._objects = objects
        self._rng = rng
        self._metrics = metrics
        self._clock = clock
        self._known = NO_OBJECTS
        self._rewriters: dict[type[Parser], bool] = {}
        self._warn_at: dict[str, float] = {}

    def apply(self, request: InferenceRequest, parser: Parser | None) -> None:
        """Set the target model and, where it is another, the body that names it.

        ``BadRequestError`` when the API needs a model and neither client nor operator has named one.
        """
        objects = self._objects.current
        asked = request.headers.control(MODEL_NAME_REWRITE)
        if parser is not None and (asked or objects.rewrites):
            self._retarget(request, parser, asked, objects)
        if not request.target_model and request.parsed.model_use is ModelUse.REQUIRED:
            raise BadRequestError("model not found in request body", param="model")

    def _retarget(self, request: InferenceRequest, parser: Parser, asked: str, objects: PoolObjects) -> None:
        decision = objects.rewrite(request.model, self._rng)
        if decision is None and not asked:
            return
        rewriter = self._rewriter(parser)
        if rewriter is None or not (request.model or request.parsed.model_use):
            return
        if decision is None:
            target = _checked(asked)
        else:
            target = decision.target
            self._learn(objects)
            self._metrics.model_rewritten(decision.rewrite, request.model, target)
        if target != request.model:
            request.target_model = target
            request.new_body = rewriter.rename_model(request.body, request.parsed, target)

    def _rewriter(self, parser: Parser) -> ModelNameRewriter | None:
        """The parser, if it can rewrite names; else somebody is told that its requests keep theirs."""
        kind = type(parser)
        can = self._rewriters.get(kind)
        if can is None:
            can = self._rewriters[kind] = isinstance(parser, ModelNameRewriter)
        if can:
            return parser  # type: ignore[return-value]
        name: str = parser.name.name  # type: ignore[attr-defined]  # every plugin has one
        now = self._clock()
        if now >= self._warn_at.get(name, 0.0):
            self._warn_at[name] = now + WARNING_INTERVAL_S
            log.warning("requests that parser '%s' reads keep their model: it cannot rewrite names", name)
        return None

    def _learn(self, objects: PoolObjects) -> None:
        """Let the metrics keep apart the models that rules name, whatever clients ask for."""
        if objects is not self._known:
            self._known = objects
            self._metrics.keep_models(objects.models, objects.targets)


def plain_answer(request: InferenceRequest) -> dict[str, str]:
    """Headers that ask for a response in which the requested model can be put back.

    A proxy that compresses for clients has seen by then what they accept.
    """
    concerned = request.model and request.target_model != request.model
    return {ACCEPT_ENCODING: "identity"} if concerned and ACCEPT_ENCODING in request.headers else {}


def restorer(request: InferenceRequest, parser: object, headers: Headers) -> BodyTransform | None:
    """What puts the requested model back into the response with these headers; None when nothing has to.

    Only for requests whose target model is another than the requested one.
    """
    if not request.model or not isinstance(parser, ModelNameRewriter):
        return None
    if headers.get(CONTENT_ENCODING).lower() not in {"", "identity"}:
        return None
    content_type = headers.get("content-type", "application/json").lower()
    streaming = "text/event-stream" in content_type
    if not streaming and "json" not in content_type:
        return None
    return parser.model_restorer(streaming, request.target_model, request.model)


def _checked(name: str) -> str:
    """A name that a header gave. ``BadRequestError`` when no body could carry it."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        size = MAX_MODEL_NAME_BYTES + 1
    if size > MAX_MODEL_NAME_BYTES:
        raise BadRequestError(
            f"the header {MODEL_NAME_REWRITE} must be UTF-8 text of at most {MAX_MODEL_NAME_BYTES} bytes",
            param=MODEL_NAME_REWRITE,
        )
    return name
