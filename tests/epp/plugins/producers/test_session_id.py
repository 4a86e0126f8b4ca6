"""session-id-producer: a header or a cookie names the session; x-session-id unless told otherwise."""

import pytest

from dataplane.config.problems import ConfigErrors
from dataplane.headers import Headers
from epp.graph import load_graph
from epp.interfaces.attributes import SESSION_ID
from epp.interfaces.endpoint import EndpointTable
from epp.interfaces.handle import Handle
from epp.plugins.producers.session_id import SessionIdProducer
from tests.support.pool import make_plugin, make_request, make_table


def session(parameters: dict[str, str] | None, *headers: tuple[str, str]) -> str | None:
    request = make_request()
    request.headers = Headers.of(headers)
    make_plugin(SessionIdProducer, None, parameters).produce(request, make_table(1).all())
    return request.get(SESSION_ID)


def test_a_named_header_is_read_whatever_its_case():
    assert session({"headerName": "X-Conversation"}, ("x-conversation", "c1")) == "c1"
    assert session({"headerName": "X-Conversation"}, ("x-session-id", "s1")) is None


@pytest.mark.parametrize("parameters", [None, {}])
def test_without_parameters_the_usual_header_is_read(parameters: dict[str, str] | None):
    assert session(parameters, ("x-session-id", "s1")) == "s1"
    assert session(parameters, ("x-session-id", "")) is None
    assert session(parameters) is None


def test_a_named_cookie_is_read_and_not_the_header():
    found = session({"cookieName": "sid"}, ("cookie", "sid=one"), ("x-session-id", "s1"))
    assert found == session({"cookieName": "sid"}, ("cookie", "x=y; sid=one"))
    assert found is not None
    assert found.startswith("blake2b:")
    assert session({"cookieName": "sid"}, ("x-session-id", "s1")) is None


def test_header_and_cookie_together_are_refused():
    with pytest.raises(ConfigErrors) as caught:
        make_plugin(SessionIdProducer, None, {"headerName": "a", "cookieName": "b"})
    assert [str(e) for e in caught.value.errors] == [
        "parameters.cookieName: give either headerName or cookieName, not both"
    ]


def test_it_publishes_under_its_name_unless_it_is_the_default_one():
    assert list(make_plugin(SessionIdProducer).produces) == [SESSION_ID]
    assert list(make_plugin(SessionIdProducer, name="mine").produces) == [SESSION_ID.by("mine")]


def test_it_is_created_for_whoever_needs_a_session_id():
    graph = load_graph(
        """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: session-affinity-scorer
  parameters: {strategy: session_id, sessionIdConfig: {sources: [{attribute: SessionID}]}}
""",
        Handle(EndpointTable()),
        allow_experimental=True,
    )
    assert [p.name.name for p in graph.producers] == ["session-id-producer"]  # type: ignore[attr-defined]
