"""disagg-profile-handler: stages in order, headers for the sidecar, and what a failed stage means."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from dataplane.config.problems import ConfigErrors
from dataplane.errors import InternalError, ResourceExhaustedError, ServiceUnavailableError
from dataplane.extproc.events import Proceed
from dataplane.extproc.exchange import Decision, Ending, HttpRequest
from dataplane.headers import Headers
from epp.interfaces.attributes import PEER_ENDPOINT
from epp.plugins.profile_handlers.disaggregated import DisaggregatedProfileHandler
from epp.plugins.stages import Stage
from tests.support.labelled import labelled_table
from tests.support.pool import make_plugin, make_request
from tests.support.request_path import Rig, destination, request_of, response, set_headers

STAGES = """
- type: max-score-picker
- type: always-disagg-pd-decider
- type: always-disagg-multimodal-decider
- {type: prefix-based-pd-decider, parameters: {nonCachedTokens: 70}}
- type: decode-filter
- type: prefill-filter
- type: encode-filter
- type: active-request-scorer
- {type: max-score-picker, name: best-two, parameters: {maxNumOfEndpoints: 2}}
schedulingProfiles:
- {name: decode, plugins: [{pluginRef: decode-filter}]}
- {name: prefill, plugins: [{pluginRef: prefill-filter}, {pluginRef: active-request-scorer}]}
- {name: encode, plugins: [{pluginRef: encode-filter}, {pluginRef: best-two}]}
"""
DECODE, PREFILL = "10.0.0.1:8000", "10.0.0.2:8000"
ROLES = ("decode", "prefill", "encode", "encode")
ALWAYS = "{prefill: always-disagg-pd-decider}"
BOTH = "{prefill: always-disagg-pd-decider, encode: always-disagg-pd-decider}"


def rig(parameters: str, roles: Sequence[str] = ROLES) -> Rig:
    """A request path over endpoints of these roles."""
    handler = f"- {{type: disagg-profile-handler, parameters: {parameters}}}"
    table = labelled_table([{"llm-d.ai/role": role} for role in roles])
    return Rig(handler + STAGES, table)


def ask(path: Rig, prompt_bytes: int, *headers: tuple[str, str]) -> Decision | None:
    """The answer to a completion request with a prompt of this length."""
    body = b'{"model": "m", "prompt": "%s"}' % (b"a" * prompt_bytes)
    return path.handler.open().on_request(
        HttpRequest(Headers.of([(":path", "/v1/completions"), *headers]), body, None), lambda decision: None
    )


def stage_headers(decision: Decision | None) -> dict[str, str]:
    """What an answer tells the sidecar."""
    assert decision is not None
    told = set_headers(decision)
    return {name: told[name].decode() for name in told if name.startswith(("x-prefiller", "x-encoder"))}


def test_a_prompt_of_ten_tokens_is_prefilled_when_the_decider_always_says_yes():
    decision = ask(rig(f"{{deciders: {ALWAYS}}}"), 40)
    assert destination(decision) == DECODE
    assert stage_headers(decision) == {"x-prefiller-host-port": PREFILL}


def test_a_server_of_both_roles_that_is_chosen_for_both_is_not_told_to_ask_itself():
    for handler in (f"{{deciders: {ALWAYS}}}", f"{{deciders: {ALWAYS}, onNoPrefill: fail}}"):
        path = rig(handler, ["both"])
        decision = ask(path, 40)
        assert destination(decision) == DECODE
        assert stage_headers(decision) == {}
        shown = next(path.decisions.recent(1))
        assert (shown["decision"], shown["leftOut"]) == ("decode-only", [])


def test_all_encoders_are_listed_and_one_prefiller():
    assert stage_headers(ask(rig(f"{{deciders: {BOTH}}}"), 40)) in (
        {"x-prefiller-host-port": PREFILL, "x-encoder-hosts-ports": "10.0.0.3:8000,10.0.0.4:8000"},
        {"x-prefiller-host-port": PREFILL, "x-encoder-hosts-ports": "10.0.0.4:8000,10.0.0.3:8000"},
    )


def test_without_deciders_only_decode_runs():
    path = rig("{}")
    assert stage_headers(ask(path, 4000)) == {}
    assert "plugin 'disagg-profile-handler': no deciders are named, so no request is disaggregated" in (
        path.graph.warnings
    )


def test_the_prefix_decider_sees_what_the_decode_endpoint_holds():
    path = rig("{deciders: {prefill: prefix-based-pd-decider}}")
    assert stage_headers(ask(path, 4 * 69)) == {}
    assert stage_headers(ask(path, 4000)) == {"x-prefiller-host-port": PREFILL}
    assert stage_headers(ask(path, 4000)) == {}


def test_a_client_cannot_send_the_headers_itself():
    forged = (("x-prefiller-host-port", "6.6.6.6:6"), ("x-encoder-hosts-ports", "6.6.6.6:6"))
    decision = ask(rig("{}"), 40, *forged)
    assert stage_headers(decision) == {}
    assert isinstance(decision, Proceed)
    assert set(decision.remove_headers) == {"x-prefiller-host-port", "x-encoder-hosts-ports"}
    decision = ask(rig(f"{{deciders: {ALWAYS}}}"), 40, *forged)
    assert stage_headers(decision) == {"x-prefiller-host-port": PREFILL}
    assert isinstance(decision, Proceed)
    assert list(decision.remove_headers) == ["x-encoder-hosts-ports"]


def test_a_failed_decode_is_429_with_the_reasons():
    with pytest.raises(ResourceExhaustedError) as caught:
        ask(rig(f"{{deciders: {ALWAYS}}}", ("prefill",)), 40)
    assert caught.value.message == (
        "failed to find available decode workers: no endpoint can take the request: "
        "filter 'decode-filter' of profile 'decode' left none of 1"
    )
    assert caught.value.status == 429


def test_prefill_first_joins_the_reasons_of_both_stages():
    with pytest.raises(ResourceExhaustedError) as caught:
        ask(rig("{stageOrder: prefill-first}", ("encode",)), 40)
    assert caught.value.message == (
        "failed to find available decode workers: no endpoint can take the request: "
        "filter 'prefill-filter' of profile 'prefill' left none of 1; no endpoint can take the request: "
        "filter 'decode-filter' of profile 'decode' left none of 1"
    )


@pytest.mark.parametrize(
    ("roles", "decision", "left_out"),
    [
        (ROLES, "encode-prefill-decode", []),
        (("decode", "prefill"), "prefill-decode", ["encode"]),
        (("decode", "encode"), "encode-decode", ["prefill"]),
        (("decode",), "decode-only", ["encode", "prefill"]),
    ],
)
def test_a_stage_without_endpoint_is_left_out(roles: Sequence[str], decision: str, left_out: list[str]):
    path = rig(f"{{deciders: {BOTH}}}", roles)
    exchange, answer = path.ask()
    assert destination(answer) == DECODE
    result = exchange._admitted.result  # type: ignore[union-attr]
    assert result.decision == decision
    assert list(result.left_out) == left_out
    assert ("x-prefiller-host-port" in stage_headers(answer)) is ("prefill" in roles)
    counted = [line for block in path.metrics.numbers.expose() for line in block.splitlines()]
    handler = 'plugin_name="disagg-profile-handler",plugin_type="disagg-profile-handler"'
    name = "llm_d_epp_disagg_decision_total"
    assert f'{name}{{{handler},model_name="m",decision_type="{decision}"}} 1' in counted
    for stage in left_out:
        assert f'pointsman_epp_disagg_left_out_total{{{handler},stage="{stage}"}} 1' in counted


def test_a_decision_record_tells_what_was_left_out():
    path = rig(f"{{deciders: {BOTH}}}", ("decode", "encode"))
    path.ask()
    newest = next(iter(path.decisions.recent()))
    assert (newest["decision"], newest["leftOut"]) == ("encode-decode", ["prefill"])


@pytest.mark.parametrize("stages", [f"deciders: {ALWAYS}", "stageOrder: prefill-first"])
def test_a_required_prefill_that_finds_nobody_is_503(stages: str):
    path = rig(f"{{onNoPrefill: fail, {stages}}}", ("decode", "encode"))
    with pytest.raises(ServiceUnavailableError) as caught:
        path.ask()
    error = caught.value
    assert (error.status, error.client_code, error.dropped_reason) == (
        503,
        "no_prefill_endpoints",
        "rejected-no-endpoints",
    )
    assert error.message == (
        "no prefill endpoint is available: no endpoint can take the request: "
        "filter 'prefill-filter' of profile 'prefill' left none of 2"
    )
    assert path.table.inflight.sum() == 0


def test_a_required_prefill_is_given_an_ejected_endpoint_rather_than_none():
    path = rig(f"{{onNoPrefill: fail, deciders: {ALWAYS}}}", ("decode", "prefill"))
    path.table.eject(1)
    assert stage_headers(path.ask()[1]) == {"x-prefiller-host-port": PREFILL}


def test_a_required_prefill_is_not_asked_of_requests_that_need_none():
    stages = "onNoPrefill: fail, deciders: {prefill: prefix-based-pd-decider}"
    path = rig(f"{{{stages}}}", ("decode",))
    assert destination(ask(path, 40)) == DECODE
    with pytest.raises(ServiceUnavailableError):
        ask(path, 4000)


def test_a_failed_decode_weighs_more_than_a_missing_prefill():
    with pytest.raises(ResourceExhaustedError, match="failed to find available decode workers"):
        rig("{onNoPrefill: fail, stageOrder: prefill-first}", ("encode",)).ask()


def test_a_failed_encode_costs_nothing_where_prefill_is_required():
    path = rig(f"{{onNoPrefill: fail, deciders: {BOTH}}}", ("decode", "prefill"))
    assert stage_headers(path.ask()[1]) == {"x-prefiller-host-port": PREFILL}


def test_a_required_prefill_needs_its_profile():
    assert problems(f"{{onNoPrefill: fail, profiles: {{prefill: p}}, deciders: {ALWAYS}}}") == [
        (
            "schedulingProfiles: disagg-profile-handler 'disagg-profile-handler' needs the prefill profile "
            "'p', got decode, prefill, encode; add it, or name another one in the handler's parameters"
        )
    ]


def test_prefill_first_runs_prefill_without_asking_and_publishes_its_endpoint():
    path = rig("{stageOrder: Prefill_First}")
    exchange, answer = path.ask()
    assert stage_headers(answer) == {"x-prefiller-host-port": PREFILL}
    peer = request_of(exchange).get(PEER_ENDPOINT)
    assert peer is not None
    assert peer.key == PREFILL


def test_decode_first_publishes_no_peer():
    exchange, _ = rig(f"{{deciders: {ALWAYS}}}").ask()
    assert request_of(exchange).get(PEER_ENDPOINT) is None


def test_a_prefill_endpoint_is_booked_until_the_first_byte():
    path = rig(f"{{deciders: {ALWAYS}}}")
    exchange, _ = path.ask()
    assert path.table.inflight[:4].tolist() == [1.0, 1.0, 0.0, 0.0]
    exchange.on_response_headers(response())
    exchange.on_response_chunk(b"{", False)
    assert path.table.inflight[:4].tolist() == [1.0, 0.0, 0.0, 0.0]
    exchange.on_end(Ending.NATURAL)
    assert path.table.inflight[:4].tolist() == [0.0, 0.0, 0.0, 0.0]


def test_an_answer_without_a_byte_releases_the_prefill_endpoint_as_well():
    path = rig(f"{{deciders: {ALWAYS}}}")
    exchange, _ = path.ask()
    exchange.on_end(Ending.NATURAL)
    assert path.table.inflight[:4].tolist() == [0.0, 0.0, 0.0, 0.0]


def test_a_burst_spreads_over_the_prefill_endpoints():
    path = rig(f"{{deciders: {ALWAYS}}}", ("decode", "prefill", "prefill"))
    for _ in range(6):
        path.ask()
    assert path.table.inflight[:3].tolist() == [6.0, 3.0, 3.0]


def test_another_kind_of_failure_of_decode_stays_what_it_is():
    handler = make_plugin(DisaggregatedProfileHandler)
    error = ServiceUnavailableError("closed")
    assert handler.judge({"decode": error}) is error
    assert handler.judge({"prefill": error}) is None


def test_every_stage_is_asked_for_once_and_in_order():
    asked = []
    handler = make_plugin(
        DisaggregatedProfileHandler,
        None,
        {"deciders": {"prefill": "d", "encode": "d"}},
        plugins={"d": Says({"encode": False, "prefill": True}, asked)},
    )
    available = {name: Named(name) for name in ("decode", "prefill", "encode")}
    results: dict[str, Any] = {}
    order = []
    while chosen := handler.profiles(make_request(), available, results):
        order += [profile.name for profile in chosen]
        results |= {profile.name: Found for profile in chosen}
    assert order == ["decode", "prefill"]
    assert asked == ["encode", "prefill"]


class Named:
    """A profile that only has a name."""

    def __init__(self, name: str) -> None:
        self.name = name


class Found:
    """The result of any profile."""

    endpoints = ("endpoint",)


class Says:
    """A decider that answers in turn and notes that it was asked."""

    def __init__(self, answers: Mapping[str, bool], asked: list[str]) -> None:
        self.answers = list(answers.items())
        self.asked = asked

    def wants_stage(self, request: Any, endpoint: Any) -> bool:
        stage, answer = self.answers[len(self.asked)]
        self.asked.append(stage)
        return answer


def test_no_decode_result_is_a_defect():
    with pytest.raises(InternalError):
        make_plugin(DisaggregatedProfileHandler).process(make_request(), {"decode": None})


def test_deprecated_flat_parameters_still_work():
    path = rig(
        "{decodeProfile: decode, prefillProfile: prefill, deciderPluginName: always-disagg-pd-decider}"
    )
    assert stage_headers(ask(path, 40)) == {"x-prefiller-host-port": PREFILL}
    assert "plugin 'disagg-profile-handler': deciderPluginName is deprecated; use profiles and deciders" in (
        path.graph.warnings
    )


def problems(parameters: str) -> list[str]:
    """What is wrong with these parameters of the handler, which is the first plugin."""
    with pytest.raises(ConfigErrors) as caught:
        rig(parameters)
    return [str(error) for error in caught.value.errors]


AT = "plugins[0].parameters"


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ("{stageOrder: encode-first}", "stageOrder: must be one of decode-first, prefill-first"),
        (
            "{deciders: {prefill: always-pd-decider}}",
            (
                "deciders.prefill: references undefined plugin 'always-pd-decider'"
                ' (did you mean "always-disagg-pd-decider"?)'
            ),
        ),
        (
            "{encodeDeciderPluginName: decode-filter}",
            "encodeDeciderPluginName: the plugin 'decode-filter' is not a decider",
        ),
        (
            "{deciders: {encode: disagg-profile-handler}}",
            "plugins refer to one another: disagg-profile-handler -> disagg-profile-handler",
        ),
        (
            f"{{stageOrder: prefill-first, deciders: {ALWAYS}}}",
            "deciders.prefill: prefill-first always prefills first and asks no decider",
        ),
        (
            f"{{prefillProfile: p, deciders: {ALWAYS}}}",
            "prefillProfile: cannot be mixed with profiles and deciders; move it there",
        ),
        (
            "{deciderPluginName: always-disagg-pd-decider, prefillDeciderPluginName: other}",
            "deciderPluginName: names another decider than prefillDeciderPluginName",
        ),
        (
            "{profiles: {decode: prefill}}",
            "profiles: each stage needs a profile of its own, got prefill, encode, prefill",
        ),
    ],
)
def test_mistakes_are_refused_at_their_place(parameters: str, problem: str):
    separator = ": " if problem.startswith("plugins refer") else "."
    assert problems(parameters) == [f"{AT}{separator}{problem}"]


def test_the_decode_profile_must_exist():
    assert problems("{profiles: {decode: generate}}") == [
        (
            "schedulingProfiles: disagg-profile-handler 'disagg-profile-handler' needs the decode profile "
            "'generate', got decode, prefill, encode; add it, or name another one in the handler's parameters"
        )
    ]


def test_the_producers_it_reads_are_created():
    created = rig(f"{{deciders: {ALWAYS}}}").graph.instances
    assert {"token-producer", "approx-prefix-cache-producer"} <= set(created)


def test_stages_are_told_by_their_names():
    assert [str(stage) for stage in Stage] == ["decode", "encode", "prefill"]


MULTIMODAL = "{deciders: {prefill: always-disagg-pd-decider, encode: always-disagg-multimodal-decider}}"


def chat(path: Rig, *parts: str) -> Decision | None:
    """The answer to a chat request with these parts."""
    messages = f'[{{"role": "user", "content": [{", ".join(parts)}]}}]'
    body = f'{{"model": "m", "messages": {messages}}}'
    headers = Headers.of([(":path", "/v1/chat/completions")])
    return path.handler.open().on_request(HttpRequest(headers, body.encode(), None), lambda decision: None)


@pytest.mark.parametrize("kind", ["image", "video", "audio"])
def test_media_are_encoded_apart_and_text_is_not(kind: str):
    path = rig(MULTIMODAL)
    text = '{"type": "text", "text": "what is it?"}'
    medium = f'{{"type": "{kind}_url", "{kind}_url": {{"url": "http://x/a"}}}}'
    assert "x-encoder-hosts-ports" in stage_headers(chat(path, text, medium))
    assert stage_headers(chat(path, text)) == {"x-prefiller-host-port": PREFILL}


def test_an_image_goes_back_to_the_encoder_that_has_it():
    plugins = STAGES.replace("pluginRef: best-two", "pluginRef: mm-embeddings-cache-scorer")
    handler = (
        f"- {{type: disagg-profile-handler, parameters: {MULTIMODAL}}}\n- type: mm-embeddings-cache-scorer"
    )
    path = Rig(handler + plugins, labelled_table([{"llm-d.ai/role": role} for role in ROLES]))

    def encoder(number: int) -> str:
        image = f'{{"type": "image_url", "image_url": {{"url": "http://x/{number}"}}}}'
        return stage_headers(chat(path, image))["x-encoder-hosts-ports"]

    first = {number: encoder(number) for number in range(20)}
    assert set(first.values()) == {"10.0.0.3:8000", "10.0.0.4:8000"}
    assert {number: encoder(number) for number in range(20)} == first
