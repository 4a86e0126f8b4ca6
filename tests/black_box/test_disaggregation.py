"""Disaggregated serving, seen from outside: what the sidecar is told, and what becomes of missing stages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.black_box import (
    ANSWERED,
    DROPPED,
    Pod,
    Site,
    destination,
    refusal,
    removed_headers,
    request_body,
    request_headers,
    response_body,
    response_headers,
    set_headers,
)

pytestmark = pytest.mark.integration

PREFILLER, ENCODERS = "x-prefiller-host-port", "x-encoder-hosts-ports"
KV_SOURCE = "x-kv-cache-source-host-port"
EXPERIMENTAL = ("--allow-experimental-plugins",)
CHAT = "/v1/chat/completions"

PROFILES = """
- {type: decode-filter}
- {type: prefill-filter}
- {type: encode-filter}
- {type: queue-scorer}
- {type: prefix-cache-scorer}
schedulingProfiles:
- name: decode
  plugins:
  - {pluginRef: decode-filter}
  - {pluginRef: queue-scorer}
  - {pluginRef: prefix-cache-scorer, weight: 3}
- name: prefill
  plugins:
  - {pluginRef: prefill-filter}
  - {pluginRef: queue-scorer}
  - {pluginRef: prefix-cache-scorer, weight: 3}
- name: encode
  plugins: [{pluginRef: encode-filter}, {pluginRef: queue-scorer}]
"""


def disaggregated(parameters: str, more: str = "") -> str:
    """A configuration of this handler."""
    return f"""
plugins:
- {{type: disagg-profile-handler, parameters: {parameters}}}
- {{type: prefix-based-pd-decider, parameters: {{nonCachedTokens: 200}}}}
- {{type: always-disagg-pd-decider}}
- {{type: always-disagg-multimodal-decider}}
{more}{PROFILES}"""


BY_PREFIX = disaggregated("{deciders: {prefill: prefix-based-pd-decider}}")
SHORT = {"model": "m", "prompt": "hello " * 10}
LONG = {"model": "m", "prompt": "a long prompt " * 200}


def pod(role: str, waiting: int = 0) -> Pod:
    return Pod(waiting, labels={"llm-d.ai/role": role})


async def asked(site: Site, body: Any, *headers: tuple[str, str], path: str = "/v1/completions") -> Any:
    """The answer to the headers of one request that is then served."""
    messages = (request_headers(*headers, path=path), request_body(body, end=True), *ANSWERED)
    return (await site.converse(*messages))[0]


async def test_a_long_new_prompt_is_prefilled_apart_and_a_short_or_cached_one_is_not(tmp_path: Path) -> None:
    pods = (pod("decode", 1), pod("decode"), pod("prefill", 1), pod("prefill"))
    async with Site(tmp_path, *pods, config=BY_PREFIX) as site:
        first = await asked(site, LONG)
        assert destination(first) == site.key(1)
        assert set_headers(first)[PREFILLER] == site.key(3)

        for body in (SHORT, LONG):
            again = await asked(site, body)
            assert destination(again) == site.key(1)
            assert PREFILLER not in set_headers(again)

        decisions = "llm_d_epp_disagg_decision_total"
        assert await site.sample(decisions, decision_type="prefill-decode") == 1
        assert await site.sample(decisions, decision_type="decode-only") == 2


async def test_a_prompt_shorter_than_a_block_is_prefilled_apart_when_that_is_always_wanted(
    tmp_path: Path,
) -> None:
    always = disaggregated("{deciders: {prefill: always-disagg-pd-decider}}")
    async with Site(tmp_path, pod("decode"), pod("prefill"), config=always) as site:
        for _ in range(2):
            answer = await asked(site, {"model": "m", "prompt": "ten tokens of a prompt, and no more now"})
            assert set_headers(answer)[PREFILLER] == site.key(1)


async def test_a_client_cannot_order_the_sidecar_about(tmp_path: Path) -> None:
    async with Site(tmp_path, pod("decode"), pod("prefill"), config=BY_PREFIX) as site:
        forged = [(name, "6.6.6.6:6") for name in (PREFILLER, ENCODERS, KV_SOURCE)]
        answer = await asked(site, SHORT, *forged)
        assert {PREFILLER, ENCODERS, KV_SOURCE} <= removed_headers(answer)
        assert "6.6.6.6:6" not in set_headers(answer).values()
        assert set_headers(await asked(site, LONG, *forged))[PREFILLER] == site.key(1)


async def test_media_are_encoded_apart(tmp_path: Path) -> None:
    config = disaggregated("{deciders: {encode: always-disagg-multimodal-decider}}")
    text = {"type": "text", "text": "what is it?"}
    image = {"type": "image_url", "image_url": {"url": "http://x/a.png"}}
    async with Site(tmp_path, pod("decode"), pod("prefill"), pod("encode"), config=config) as site:

        def chat(*parts: Any) -> Any:
            return {"model": "m", "messages": [{"role": "user", "content": list(parts)}]}

        encoded = await asked(site, chat(text, image), path=CHAT)
        assert destination(encoded) == site.key(0)
        assert set_headers(encoded)[ENCODERS] == site.key(2)
        assert ENCODERS not in set_headers(await asked(site, chat(text), path=CHAT))


async def test_without_prefill_servers_requests_go_on_or_are_refused_as_configured(tmp_path: Path) -> None:
    async with Site(tmp_path, pod("decode"), config=BY_PREFIX) as site:
        answer = await asked(site, LONG)
        assert destination(answer) == site.key(0)
        assert PREFILLER not in set_headers(answer)
        assert await site.sample("pointsman_epp_disagg_left_out_total", stage="prefill") == 1
        (decision,) = json.loads(await site.page("/debug/decisions"))["decisions"]
        assert (decision["decision"], decision["leftOut"]) == ("decode-only", ["prefill"])

    strict = disaggregated("{onNoPrefill: fail, deciders: {prefill: prefix-based-pd-decider}}")
    async with Site(tmp_path, pod("decode"), config=strict) as site:
        status, error, headers = refusal(await site.ask(LONG))
        assert (status, error["code"]) == (503, "no_prefill_endpoints")
        assert headers[DROPPED] == "rejected-no-endpoints"
        assert destination(await asked(site, SHORT)) == site.key(0)


SESSIONS = """- type: session-affinity-filter
  name: stay-decode
  parameters: {encodedEndpointHeaderConfig: {header: x-decode-token}, profileName: decode}
- type: session-affinity-filter
  name: stay-prefill
  parameters: {encodedEndpointHeaderConfig: {header: x-prefill-token}, profileName: prefill}
"""


async def test_a_session_pins_both_stages_by_two_headers(tmp_path: Path) -> None:
    config = disaggregated("{deciders: {prefill: prefix-based-pd-decider}}", SESSIONS)
    for stage in ("decode", "prefill"):
        listed = f"  - {{pluginRef: {stage}-filter}}\n"
        config = config.replace(listed, f"{listed}  - {{pluginRef: stay-{stage}}}\n")
    pods = [pod(role) for role in ("decode", "decode", "decode", "prefill", "prefill", "prefill")]

    async with Site(tmp_path, *pods, config=config, flags=EXPERIMENTAL) as site:

        async def turn(prompt: str, *headers: tuple[str, str]) -> tuple[Any, dict[str, str]]:
            answers = await site.converse(
                request_headers(*headers),
                request_body({"model": "m", "prompt": prompt}, end=True),
                response_headers(("content-type", "application/json")),
                response_body(b"{}", end=True),
            )
            told = [answer for answer in answers if answer.WhichOneof("response") == "response_headers"]
            return answers[0], set_headers(told[0])

        first, tokens = await turn("first " * 400)
        assert {"x-decode-token", "x-prefill-token"} <= set(tokens)
        sent = [(name, tokens[name]) for name in ("x-decode-token", "x-prefill-token")]
        for number in range(4):
            again, _ = await turn(f"another {number} " * 400, *sent)
            assert destination(again) == destination(first)
            assert set_headers(again)[PREFILLER] == set_headers(first)[PREFILLER]

        decode_only, told = await turn("short", *sent)
        assert destination(decode_only) == destination(first)
        assert PREFILLER not in set_headers(decode_only)
        assert "x-decode-token" in told
        assert "x-prefill-token" not in told


async def test_conditional_decode_is_served_only_where_the_prompt_is_held(tmp_path: Path) -> None:
    async with Site(tmp_path, pod("decode"), pod("decode"), pod("prefill"), config=BY_PREFIX) as site:
        wish = ("prefer", "respond-async, If-Available; wait=5")
        status, error, _ = refusal(await site.ask(LONG, wish))
        assert (status, error["message"]) == (412, "no decode worker has the requested KV cache")
        assert await site.sample("llm_d_epp_request_error_total", error_code="PreconditionFailed") == 1
        assert site.picker.table.inflight.sum() == 0
        served = destination(await asked(site, LONG))
        assert destination(await asked(site, LONG, wish)) == served


ROLLOUT = """
plugins:
- type: disaggregatedset-rollout-screener
  parameters:
    scope: {labelSelector: "app=llm"}
    headerSelectors: [{name: revision, headerName: x-revision, labelKey: rev, mode: strict}]
    revisionGating:
      mode: sum
      revisionLabelKey: rev
      roleLabelKey: llm-d.ai/role
      requireRoles: {values: [prefill, decode]}
- {type: disagg-profile-handler, parameters: {deciders: {prefill: always-disagg-pd-decider}}}
- {type: always-disagg-pd-decider}
"""


async def test_all_stages_of_a_request_are_of_one_revision(tmp_path: Path) -> None:
    pods = [
        Pod(labels={"llm-d.ai/role": role, "rev": rev, "app": "llm"})
        for rev in ("a", "b")
        for role in ("prefill", "decode")
    ] + [Pod(labels={"llm-d.ai/role": "decode", "rev": "c", "app": "llm"})]
    config = ROLLOUT + PROFILES
    async with Site(tmp_path, *pods, config=config, flags=EXPERIMENTAL) as site:
        pairs = {(site.key(1), site.key(0)), (site.key(3), site.key(2))}
        seen = set()
        for number in range(40):
            answer = await asked(site, {"model": "m", "prompt": f"prompt {number}"})
            seen.add((destination(answer), set_headers(answer)[PREFILLER]))
        assert seen == pairs

        pinned = await asked(site, SHORT, ("x-revision", "b"))
        assert destination(pinned) == site.key(3)
        for revision in ("c", "d"):
            status, error, headers = refusal(await site.ask(SHORT, ("x-revision", revision)))
            assert (status, error["message"]) == (503, "screeners eliminated all endpoint candidates")
            assert headers[DROPPED] == "rejected-no-endpoints"
        assert await site.sample("llm_d_epp_disaggregatedset_strict_header_no_match_total") == 1
        assert await site.sample("llm_d_epp_disaggregatedset_revision_gating_share", revision="a") == 0.5
        assert await site.sample("llm_d_epp_disaggregatedset_revision_gating_share", revision="c") == 0
