"""agent-identity: the headers of coding agents name a session, which is also the fairness id."""

import pytest

from dataplane.config.problems import ConfigErrors
from dataplane.headers import Headers
from epp.interfaces.attributes import AGENT_IDENTITY
from epp.interfaces.request import InferenceRequest
from epp.plugins.producers.agent_identity import AgentIdentity
from epp.plugins.session_ids import MAX_SESSION_ID_BYTES
from tests.support.pool import make_plugin, make_request


def seen(*headers: tuple[str, str], more: list[str] | None = None) -> InferenceRequest:
    """A request with these headers, when the plugin has seen it."""
    request = make_request()
    request.headers = Headers.of(headers)
    parameters = {"additionalSessionHeaders": more} if more is not None else None
    make_plugin(AgentIdentity, None, parameters).process_request_headers(request)
    return request


@pytest.mark.parametrize(
    "header", ["X-Claude-Code-Session-Id", "x-session-affinity", "session-id", "session_id"]
)
def test_known_headers_name_the_session(header: str):
    request = seen((header, "s1"))
    assert (request.get(AGENT_IDENTITY), request.fairness_id) == ("s1", "s1")


def test_the_first_header_that_says_something_counts():
    request = seen(("session_id", "d"), ("session-id", "c"), ("x-claude-code-session-id", " "))
    assert request.get(AGENT_IDENTITY) == "c"


def test_configured_headers_come_after_the_known_ones_in_their_order():
    own = (("x-b", "b"), ("x-a", "a"))
    assert seen(*own, more=["X-A", "x-b"]).get(AGENT_IDENTITY) == "a"
    assert seen(*own, more=["x-absent", "x-b"]).get(AGENT_IDENTITY) == "b"
    assert seen(*own, ("session-id", "known"), more=["x-a"]).get(AGENT_IDENTITY) == "known"
    assert seen(("session-id", "known"), more=["session-id"]).get(AGENT_IDENTITY) == "known"


def test_other_requests_stay_as_they_are():
    request = seen(("x-session-id", "s1"))
    assert (request.get(AGENT_IDENTITY), request.fairness_id) == (None, "default-flow")


def test_long_ids_are_cut_to_a_digest():
    request = seen(("session-id", "x" * 10_000))
    assert len(request.fairness_id) < MAX_SESSION_ID_BYTES
    assert request.fairness_id == request.get(AGENT_IDENTITY)


def test_an_empty_header_name_is_refused():
    with pytest.raises(
        ConfigErrors, match=r"parameters\.additionalSessionHeaders\[0\]: expected str of length"
    ):
        make_plugin(AgentIdentity, None, {"additionalSessionHeaders": [""]})


def test_it_says_what_it_leaves():
    assert list(make_plugin(AgentIdentity, name="agents").produces) == [AGENT_IDENTITY]
