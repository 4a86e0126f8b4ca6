"""Session affinity: both strategies, what ends a session, and how a session moves with its endpoint."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.config.problems import ConfigErrors
from dataplane.headers import Headers
from epp.interfaces.attributes import AGENT_IDENTITY, SESSION_ID
from epp.interfaces.endpoint import EndpointTable
from epp.interfaces.request import InferenceRequest
from epp.interfaces.request_control import ResponseHead
from epp.interfaces.scheduling import ProfileResult, SchedulingResult
from epp.plugins.scorers.session_affinity import SessionAffinityScorer
from epp.plugins.session_affinity import (
    MAX_SESSIONS,
    MAX_SWEPT,
    MAX_TOKEN_CHARS,
    SessionMap,
    decode_token,
    encode_token,
)
from tests.support.clock import ManualClock
from tests.support.pool import add_endpoint, chosen, make_plugin, make_request, make_table
from tests.support.request_path import Rig, destination, response, set_headers

BY_ID = {"strategy": "session_id"}


def asking(*headers: tuple[str, str]) -> InferenceRequest:
    request = make_request()
    request.headers = Headers.of(headers)
    return request


def in_session(session: str) -> InferenceRequest:
    return asking(("x-session-id", session))


def pin(plugin: SessionAffinityScorer, request: InferenceRequest) -> str | None:
    """Name of the endpoint a request's session is on."""
    endpoint = plugin.pinned(request)
    return None if endpoint is None else endpoint.spec.name


def answered(
    plugin: SessionAffinityScorer,
    request: InferenceRequest,
    result: SchedulingResult,
    *,
    status: int = 200,
    served: str = "",
) -> dict[str, str]:
    """Response headers the plugin sets."""
    headers: dict[str, str] = {}
    plugin.process_response_headers(request, ResponseHead(status, Headers([]), result, served), headers)
    return headers


def two_profiles(table: EndpointTable, decode: int, prefill: int) -> SchedulingResult:
    def run(name: str, position: int) -> ProfileResult:
        candidates = table.all()
        return ProfileResult(name, [candidates.endpoint(position)], candidates, np.zeros(len(table)), [], [])

    return SchedulingResult({"decode": run("decode", decode), "prefill": run("prefill", prefill)}, "decode")


# -- the token --------------------------------------------------------------------------------------------


def test_a_token_is_the_endpoints_identity_in_base64():
    assert encode_token("default/pod-1") == "ZGVmYXVsdC9wb2QtMQ=="
    assert decode_token("ZGVmYXVsdC9wb2QtMQ==") == "default/pod-1"


@given(st.text(alphabet=st.characters(codec="utf-8"), min_size=1, max_size=200))
def test_any_identity_survives_its_token(endpoint_id: str):
    assert decode_token(encode_token(endpoint_id)) == endpoint_id


@given(st.text(max_size=50))
def test_whatever_a_client_sends_as_a_token_is_no_error(token: str):
    plugin = make_plugin(SessionAffinityScorer, make_table(1))
    assert pin(plugin, asking(("x-session-token", token.encode("utf-8", "replace").decode()))) is None


def test_what_is_no_token_names_no_endpoint():
    assert decode_token("") is None
    assert decode_token("no base64!") is None
    assert decode_token("A" * (MAX_TOKEN_CHARS + 4)) is None
    assert decode_token("A" * MAX_TOKEN_CHARS) is not None


def test_the_client_gets_a_token_and_is_led_back_by_it():
    table = make_table(3)
    plugin = make_plugin(SessionAffinityScorer, table)
    headers = answered(plugin, asking(), chosen(table.all(), 1))
    assert headers == {"x-session-token": encode_token("default/e1")}
    assert pin(plugin, asking(("x-session-token", headers["x-session-token"]))) == "e1"
    assert pin(plugin, asking()) is None


def test_the_tokens_header_can_be_named():
    table = make_table(1)
    plugin = make_plugin(
        SessionAffinityScorer, table, {"encodedEndpointHeaderConfig": {"header": "X-Decode-Session"}}
    )
    headers = answered(plugin, asking(), chosen(table.all(), 0))
    assert list(headers) == ["x-decode-session"]
    assert pin(plugin, asking(*headers.items())) == "e0"


def test_the_token_names_who_really_served():
    table = make_table(2)
    plugin = make_plugin(SessionAffinityScorer, table)
    headers = answered(plugin, asking(), chosen(table.all(), 0), served=table.all().endpoint(1).key)
    assert headers == {"x-session-token": encode_token("default/e1")}
    unknown = answered(plugin, asking(), chosen(table.all(), 0), served="192.0.2.1:80")
    assert unknown == {"x-session-token": encode_token("default/e0")}


@pytest.mark.parametrize(
    ("status", "is_pinned"), [(200, True), (404, True), (500, True), (502, False), (503, False), (504, False)]
)
def test_an_unavailable_endpoint_gives_no_token(status: int, is_pinned: bool):
    table = make_table(1)
    plugin = make_plugin(SessionAffinityScorer, table)
    assert bool(answered(plugin, asking(), chosen(table.all(), 0), status=status)) == is_pinned


# -- the map ----------------------------------------------------------------------------------------------


def test_a_session_is_where_its_last_request_went():
    table = make_table(3)
    plugin = make_plugin(SessionAffinityScorer, table, BY_ID)
    request = in_session("s")
    assert pin(plugin, request) is None
    plugin.pre_request(request, chosen(table.all(), 2), {})
    assert pin(plugin, request) == "e2"
    assert pin(plugin, in_session("other")) is None
    plugin.pre_request(request, chosen(table.all(), 0), {})
    assert pin(plugin, request) == "e0"
    assert answered(plugin, request, chosen(table.all(), 0)) == {}


def test_requests_without_a_session_leave_no_trace():
    table = make_table(1)
    plugin = make_plugin(SessionAffinityScorer, table, BY_ID)
    plugin.pre_request(asking(), chosen(table.all(), 0), {})
    answered(plugin, asking(), chosen(table.all(), 0), served=table.all().endpoint(0).key)
    assert plugin._sessions is not None
    assert len(plugin._sessions) == 0


def test_the_first_source_that_is_there_names_the_session():
    table = make_table(3)
    sources = [{"header": "X-Chat"}, {"attribute": "agent-identity"}]
    plugin = make_plugin(SessionAffinityScorer, table, {**BY_ID, "sessionIdConfig": {"sources": sources}})
    assert list(plugin.consumes) == [AGENT_IDENTITY]
    both, agent = asking(("x-chat", "chat")), asking()
    both.put(AGENT_IDENTITY, "agent")
    agent.put(AGENT_IDENTITY, "agent")
    plugin.pre_request(both, chosen(table.all(), 1), {})
    assert (pin(plugin, both), pin(plugin, agent)) == ("e1", None)
    plugin.pre_request(agent, chosen(table.all(), 2), {})
    assert (pin(plugin, both), pin(plugin, agent)) == ("e1", "e2")


def test_attributes_are_consumed_from_the_producer_that_is_named():
    def consumed(source: dict[str, str]) -> list[object]:
        config = {**BY_ID, "sessionIdConfig": {"sources": [source]}}
        return list(make_plugin(SessionAffinityScorer, None, config).consumes)

    assert consumed({"attribute": "SessionID"}) == [SESSION_ID]
    assert consumed({"attribute": "SessionID", "producer": "session-id-producer"}) == [SESSION_ID]
    assert consumed({"attribute": "SessionID", "producer": "mine"}) == [SESSION_ID.by("mine")]


def test_the_map_follows_who_really_served():
    table = make_table(2)
    plugin = make_plugin(SessionAffinityScorer, table, BY_ID)
    request, result = in_session("s"), chosen(table.all(), 0)
    plugin.pre_request(request, result, {})
    answered(plugin, request, result, served=table.all().endpoint(1).key)
    assert pin(plugin, request) == "e1"


def test_a_late_answer_of_the_chosen_endpoint_moves_no_session_back():
    table = make_table(2)
    plugin = make_plugin(SessionAffinityScorer, table, BY_ID)
    request, first = in_session("s"), chosen(table.all(), 0)
    plugin.pre_request(request, first, {})
    plugin.pre_request(request, chosen(table.all(), 1), {})
    answered(plugin, request, first, served=table.all().endpoint(0).key)
    answered(plugin, request, first, status=503)
    assert pin(plugin, request) == "e1"


def test_an_unavailable_endpoint_ends_the_session():
    table = make_table(2)
    plugin = make_plugin(SessionAffinityScorer, table, BY_ID)
    request, result = in_session("s"), chosen(table.all(), 0)
    plugin.pre_request(request, result, {})
    answered(plugin, request, result, status=500)
    assert pin(plugin, request) == "e0"
    answered(plugin, request, result, status=503)
    assert pin(plugin, request) is None


def test_a_session_ends_when_it_was_idle_too_long():
    table, clock = make_table(1), ManualClock()
    config = {**BY_ID, "sessionIdConfig": {"evictionTtlSeconds": 60}}
    plugin = make_plugin(SessionAffinityScorer, table, config, clock=clock)
    request = in_session("s")
    plugin.pre_request(request, chosen(table.all(), 0), {})
    clock.advance(59)
    assert pin(plugin, request) == "e0"
    plugin.pre_request(request, chosen(table.all(), 0), {})
    clock.advance(59)
    assert pin(plugin, request) == "e0"
    clock.advance(1)
    assert pin(plugin, request) is None


def test_a_session_outlives_its_endpoint_only_under_the_same_name():
    table = make_table(2)
    plugin = make_plugin(SessionAffinityScorer, table, BY_ID)
    request = in_session("s")
    plugin.pre_request(request, chosen(table.all(), 0), {})
    table.remove("default/e0")
    assert pin(plugin, request) is None
    add_endpoint(table, "stranger")
    assert pin(plugin, request) is None
    add_endpoint(table, "e0")
    assert pin(plugin, request) == "e0"


def test_ended_sessions_are_swept_out_so_many_at_a_time():
    clock = ManualClock()
    sessions = SessionMap(60, 10, clock)
    for i in range(MAX_SWEPT + 10):
        sessions.put(f"s{i}", "a")
    clock.advance(60)
    sessions.put("late", "a")
    assert len(sessions) == 11
    sessions.put("later", "a")
    assert len(sessions) == 2
    clock.advance(9)
    sessions.put("last", "a")
    assert len(sessions) == 3


def test_sessions_never_end_by_time_when_told_so():
    clock = ManualClock()
    sessions = SessionMap(0, 10, clock)
    sessions.put("s", "a")
    clock.advance(1e9)
    sessions.put("t", "b")
    assert (sessions.get("s"), len(sessions)) == ("a", 2)


def test_the_session_idle_longest_makes_room_at_the_cap():
    sessions = SessionMap(60, 10, ManualClock())
    for i in range(MAX_SESSIONS):
        sessions.put(str(i), "a")
    sessions.put("0", "b")
    assert len(sessions) == MAX_SESSIONS
    sessions.put("one more", "c")
    assert len(sessions) == MAX_SESSIONS
    assert (sessions.get("0"), sessions.get("1"), sessions.get("one more")) == ("b", None, "c")


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xy"), st.integers(0, 40)), max_size=30))
def test_the_map_answers_like_one_that_never_sweeps(steps: list[tuple[str, str, int]]):
    clock = ManualClock()
    sessions, last = SessionMap(30, 10, clock), dict[str, tuple[str, float]]()
    for session, endpoint, wait in steps:
        sessions.put(session, endpoint)
        last[session] = (endpoint, clock.now)
        clock.advance(wait)
        for name, (expected, at) in last.items():
            assert sessions.get(name) == (expected if clock.now - at < 30 else None)


# -- profiles, parameters and the whole path --------------------------------------------------------------


def test_an_instance_follows_the_profile_it_names():
    table = make_table(3)
    result = two_profiles(table, decode=0, prefill=2)
    primary, prefill, absent = (
        make_plugin(SessionAffinityScorer, table, {**BY_ID, "profileName": name})
        for name in ("", "prefill", "encode")
    )
    for plugin in (primary, prefill, absent):
        plugin.pre_request(in_session("s"), result, {})
    assert [pin(p, in_session("s")) for p in (primary, prefill, absent)] == ["e0", "e2", None]


def test_tokens_of_two_profiles_travel_in_two_headers():
    table = make_table(3)
    result = two_profiles(table, decode=0, prefill=2)
    header = {"encodedEndpointHeaderConfig": {"header": "x-prefill-token"}, "profileName": "prefill"}
    prefill = make_plugin(SessionAffinityScorer, table, header)
    served = table.all().endpoint(1).key
    assert answered(prefill, asking(), result, served=served) == {
        "x-prefill-token": encode_token("default/e2")
    }
    named = make_plugin(SessionAffinityScorer, table, {"profileName": "decode"})
    assert answered(named, asking(), result, served=served) == {"x-session-token": encode_token("default/e1")}
    encode = make_plugin(SessionAffinityScorer, table, {"profileName": "encode"})
    assert answered(encode, asking(), result) == {}


def test_settings_of_the_other_strategy_are_warned_of():
    assert make_plugin(SessionAffinityScorer, None, {"sessionIdConfig": {}}).warnings == [
        "sessionIdConfig has no effect with strategy encoded_endpoint_header"
    ]
    assert make_plugin(
        SessionAffinityScorer, None, {**BY_ID, "encodedEndpointHeaderConfig": {}}
    ).warnings == ["encodedEndpointHeaderConfig has no effect with strategy session_id"]
    assert make_plugin(SessionAffinityScorer, None, BY_ID).warnings == []


@pytest.mark.parametrize(
    ("parameters", "error"),
    [
        (
            {"strategy": "cookie"},
            "strategy: must be one of encoded_endpoint_header, session_id; got 'cookie'",
        ),
        (
            {"sessionIdConfig": {"sources": []}},
            "sessionIdConfig.sources: names no source; leave it out to read x-session-id",
        ),
        (
            {"sessionIdConfig": {"sources": [{}]}},
            "sessionIdConfig.sources[0]: give either a header or an attribute",
        ),
        (
            {"sessionIdConfig": {"sources": [{"header": "a", "attribute": "b"}]}},
            "sessionIdConfig.sources[0]: give either a header or an attribute",
        ),
        (
            {"sessionIdConfig": {"sources": [{"header": "a", "producer": "b"}]}},
            "sessionIdConfig.sources[0].producer: belongs to an attribute; remove it",
        ),
        (
            {"sessionIdConfig": {"evictionTtlSeconds": -1}},
            "sessionIdConfig.evictionTtlSeconds: expected float >= 0.0",
        ),
        (
            {"sessionIdConfig": {"evictionSweepSeconds": 0}},
            "sessionIdConfig.evictionSweepSeconds: expected float > 0.0",
        ),
        (
            {"encodedEndpointHeaderConfig": {"header": ""}},
            "encodedEndpointHeaderConfig.header: expected str of length >= 1",
        ),
    ],
)
def test_impossible_parameters_are_refused(parameters: dict[str, object], error: str):
    with pytest.raises(ConfigErrors) as caught:
        make_plugin(SessionAffinityScorer, None, parameters)
    assert [str(e) for e in caught.value.errors] == [f"parameters.{error}"]


@pytest.mark.parametrize("plugin", ["session-affinity-filter", "session-affinity-scorer"])
def test_a_replayed_token_leads_back_until_the_endpoint_is_gone(plugin: str):
    rig = Rig(f"- type: {plugin}\n", make_table(8))
    exchange, decision = rig.ask()
    first = destination(decision)
    token = set_headers(exchange.on_response_headers(response()))["x-session-token"].decode()
    for _ in range(20):
        assert destination(rig.ask(("x-session-token", token))[1]) == first
    endpoint = rig.table.at(first)
    assert endpoint is not None
    rig.table.remove(endpoint.spec.id)
    exchange, decision = rig.ask(("x-session-token", token))
    assert destination(decision) != first
    renewed = set_headers(exchange.on_response_headers(response()))["x-session-token"].decode()
    assert destination(rig.ask(("x-session-token", renewed))[1]) == destination(decision)


@pytest.mark.parametrize("plugin", ["session-affinity-filter", "session-affinity-scorer"])
def test_an_agents_session_is_pinned_and_a_header_of_its_own_has_precedence(plugin: str):
    sources = "[{header: x-session-id}, {attribute: agent-identity}]"
    config = f"{{strategy: session_id, sessionIdConfig: {{sources: {sources}}}}}"
    rig = Rig(f"- type: agent-identity\n- {{type: {plugin}, parameters: {config}}}\n", make_table(8))
    agent = ("x-claude-code-session-id", "agent")
    by_agent = destination(rig.ask(agent)[1])
    by_header = {destination(rig.ask(agent, ("x-session-id", f"s{i}"))[1]) for i in range(60)}
    assert len(by_header) > 1
    for _ in range(10):
        assert destination(rig.ask(agent)[1]) == by_agent


def test_its_state_is_the_sessions_latest_first_without_their_ids():
    table, clock = make_table(2), ManualClock()
    plugin = make_plugin(SessionAffinityScorer, table, BY_ID, clock=clock)
    plugin.pre_request(in_session("alpha"), chosen(table.all(), 0), {})
    clock.now += 2.5
    plugin.pre_request(in_session("beta"), chosen(table.all(), 1), {})
    shown = plugin.dump_state()
    assert (shown["strategy"], shown["totalSessions"], shown["leftOut"]) == ("session_id", 2, 0)
    assert shown["sessions"] == [
        {"sessionSha256": "f44e64e75f3948e9", "endpoint": "default/e1", "idleSeconds": 0.0},
        {"sessionSha256": "8ed3f6ad685b959e", "endpoint": "default/e0", "idleSeconds": 2.5},
    ]


def test_a_plugin_that_leaves_sessions_to_clients_shows_where():
    plugin = make_plugin(SessionAffinityScorer, make_table(1))
    assert plugin.dump_state() == {"strategy": "encoded_endpoint_header", "header": "x-session-token"}
