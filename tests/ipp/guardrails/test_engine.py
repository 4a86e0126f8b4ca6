"""What becomes of requests and of whole answers."""

from __future__ import annotations

import json

import pytest

from dataplane.config.guardrails import Rule
from dataplane.errors import ConfigError
from dataplane.extproc.events import EndBody
from ipp.guardrails import answers
from ipp.guardrails.at_work import RuleAtWork
from ipp.guardrails.masking import Vault
from ipp.guardrails.matches import REMOVED, BodyMatch, Change, Facts
from tests.support.guardrail_policies import at_work, policy
from tests.support.guardrail_streams import whole

MAIL = at_work("mail", r"\w+@\w+", 20, kind="email", restores=True)
STOP = at_work("stop", "stop", 4, mode="block", message="No stopping.")
SEEN = at_work("seen", "fox", 3, mode="flag")


class Limit:
    """Wants ``n`` to be at most 5, and no ``x``; says what it was told beside the body."""

    def __init__(self):
        self.facts = []

    def check(self, body, facts):
        self.facts.append(facts)
        found = []
        if body.get("n", 0) > 5:
            found.append(BodyMatch("n", "outOfRange", (Change(("n",), 5),)))
        if "x" in body:
            found.append(BodyMatch("x", "forbidden", (Change(("x",), REMOVED),)))
        if body.get("y"):
            found.append(BodyMatch("y", "forbidden"))
        return found


def limit(mode="mask", stages=("request",)):
    kind = "parameters" if stages == ("request",) else "language"
    rule = Rule(name="limit", type=kind, mode=mode, stages=list(stages))
    return RuleAtWork("policy", rule, body=Limit())


def chat(*contents, **more):
    return json.dumps({"messages": [{"role": "user", "content": text} for text in contents], **more}).encode()


def error(outcome):
    return json.loads(outcome.body)["error"]


def test_a_body_in_which_nothing_is_found_goes_on_as_it_is():
    body = b'{"messages" : [{"role":"user","content":"hi"}] ,"n":1.0}'
    outcome = policy(MAIL, STOP, limit()).check_request(body)
    assert outcome.action == "pass"
    assert outcome.body is body
    assert outcome.verdicts == ()
    assert outcome.vault is None


def test_masks_and_restores():
    compiled = policy(MAIL)
    body = chat("ask a@b or c@d", "and a@b; <EMAIL_1>", n=1)
    outcome = compiled.check_request(body)
    assert outcome.action == "mask"
    assert outcome.body == chat("ask <EMAIL_2> or <EMAIL_3>", "and <EMAIL_2>; <EMAIL_1>", n=1)
    assert [(verdict.path, verdict.start, verdict.end) for verdict in outcome.verdicts] == [
        ("messages[0].content", 4, 7),
        ("messages[0].content", 11, 14),
        ("messages[1].content", 4, 7),
    ]
    answer = whole("chat", {"content 0": "Dear <EMAIL_3>, not <EMAIL_1>", "args 0": '{"to":"<EMAIL_2>"}'})
    restored = compiled.check_response(json.dumps(answer).encode(), outcome.vault)
    assert restored.action == "pass"
    message = json.loads(restored.body)["choices"][0]["message"]
    assert message["content"] == "Dear c@d, not <EMAIL_1>"
    assert message["tool_calls"][0]["function"]["arguments"] == '{"to":"a@b"}'


def test_an_answer_to_somebody_else_restores_nothing():
    answer = json.dumps(whole("chat", {"content 0": "<EMAIL_1>"})).encode()
    compiled = policy(at_work("mail", "a@b", 3, restores=True, stages=["request"]))
    assert compiled.check_response(answer, None).body is answer
    assert compiled.check_response(answer, Vault()).body is answer


def test_masks_in_answers_say_what_they_hide():
    body = json.dumps(whole("chat", {"content 0": "a@b fox"})).encode()
    outcome = policy(MAIL, SEEN).check_response(body)
    assert json.loads(outcome.body)["choices"][0]["message"]["content"] == "[EMAIL] fox"
    assert [(verdict.rule, verdict.action, verdict.stage) for verdict in outcome.verdicts] == [
        ("mail", "mask", "response"),
        ("seen", "flag", "response"),
    ]


def test_blocking_beats_masking_and_flagging():
    outcome = policy(SEEN, MAIL, STOP).check_request(chat("fox a@b", "stop"))
    assert outcome.action == "block"
    assert (outcome.status, outcome.code, outcome.param) == (400, "guardrail_patterns", "messages[1].content")
    assert error(outcome) == {
        "message": "No stopping.",
        "type": "invalid_request_error",
        "param": "messages[1].content",
        "code": "guardrail_patterns",
    }
    assert [verdict.rule for verdict in outcome.verdicts] == ["seen", "mail", "stop"]
    assert b"a@b" not in outcome.body
    assert outcome.vault is None


def test_without_a_message_the_client_is_told_the_rule():
    rule = at_work("no-cats", "cat", 3, mode="block")
    assert error(policy(rule).check_request(chat("cat")))["message"] == (
        "The request is against the guardrail 'no-cats'."
    )


def test_flagging_changes_nothing():
    body = chat("a fox")
    outcome = policy(SEEN).check_request(body)
    assert (outcome.action, outcome.body) == ("flag", body)
    assert len(outcome.verdicts) == 1


def test_verdicts_hold_no_text():
    outcome = policy(MAIL).check_request(b'{"secret@key":{"x":"very@secret"}}')
    assert outcome.body == b'{"<EMAIL_1>":{"x":"<EMAIL_2>"}}'
    assert "secret" not in repr(outcome.verdicts)
    assert [verdict.path for verdict in outcome.verdicts] == ["*", "*.x"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"prompt":[1,2]}', "prompt"),
        (b'{"prompt":["a",[1.0]]}', "prompt"),
        (b'{"prompt":[1],"prompt":"a"}', "prompt"),
        (b'{"input":[[1],[2]]}', "input"),
        (b'{"input_ids":[1]}', "input_ids"),
        (b'{"prompt":"","prompt_embeds":"AAAA"}', "prompt_embeds"),
    ],
)
def test_prompts_that_nobody_can_read_pass_no_rule_that_has_to_read(body, field):
    for mode in ("block", "mask"):
        outcome = policy(at_work("cat", "cat", 3, mode=mode)).check_request(body)
        assert (outcome.status, outcome.code, outcome.param) == (400, "guardrail_unreadable", field)
    for rules in ([SEEN], [limit()], [at_work("cat", "cat", 3, mode="block", stages=("response",))]):
        assert policy(*rules).check_request(body).body is body


def test_numbers_that_are_no_prompt_pass():
    body = b'{"prompt":["a"],"input":[{"n":1}],"stop_token_ids":[1],"tools":[1],"prompt_embeds":null}'
    assert policy(STOP).check_request(body).body is body


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "The request's body is no JSON: Input data was truncated."),
        (b"[" * 10_000, "The request's body is nested deeper than 64 levels."),
        (b"[1]", "The request's body is no JSON object."),
    ],
)
def test_what_cannot_be_looked_into_is_refused(body, message):
    outcome = policy(limit()).check_request(body)
    assert (outcome.action, outcome.status, outcome.code) == ("block", 400, "guardrail_unreadable")
    assert error(outcome)["message"] == message


def test_fields_are_mended():
    outcome = policy(limit()).check_request(b'{"x":1, "n": 9, "m":1.50}')
    assert (outcome.action, outcome.body) == ("mask", b'{"n": 5, "m":1.50}')
    assert [(verdict.path, verdict.kind, verdict.action) for verdict in outcome.verdicts] == [
        ("n", "outOfRange", "mask"),
        ("x", "forbidden", "mask"),
    ]


def test_a_field_that_cannot_be_mended_blocks():
    outcome = policy(limit()).check_request(b'{"n":9,"y":1}')
    assert (outcome.action, outcome.code, outcome.param) == ("block", "guardrail_parameters", "y")
    assert [verdict.action for verdict in outcome.verdicts] == ["mask", "block"]


@pytest.mark.parametrize("body", [b'{"n":9,"n":1,"n":2}', b'{"n":1,"n":2,"n":9}'])
def test_of_two_members_with_one_name_each_that_a_reader_may_take_is_judged(body):
    outcome = policy(limit()).check_request(body)
    assert outcome.body == b'{"n":5,"n":5,"n":5}'
    assert len(outcome.verdicts) == 1


def test_what_a_rule_of_bodies_puts_in_is_looked_at():
    class Put:
        def check(self, body, facts):
            return [BodyMatch("system", "forced", (Change(("system",), "please stop"),))]

    put = RuleAtWork("policy", Rule(name="put", type="parameters", mode="mask"), body=Put())
    assert policy(put, STOP).check_request(b"{}").param == "system"


def test_rules_of_bodies_are_told_what_is_known_beside_the_body():
    rule = limit()
    policy(rule).check_request(chat("four"))
    policy(rule).check_request(chat("four"), Facts(input_tokens=3))
    assert rule.body.facts == [Facts(), Facts(input_tokens=3)]


def test_rules_of_bodies_look_at_answers_too():
    rule = limit("block", ["response"])
    compiled = policy(rule)
    assert compiled.needs_response
    assert not compiled.needs_request
    assert compiled.check_request(b'{"n":9}').action == "pass"
    assert compiled.check_response(b'{"n":9}').action == "block"


@pytest.mark.parametrize(
    ("api", "shape"),
    [
        (
            "chat",
            lambda answer: (
                [choice["finish_reason"] for choice in answer["choices"]] == ["content_filter"] * 2
            ),
        ),
        ("completions", lambda answer: [choice["text"] for choice in answer["choices"]] == ["", ""]),
        ("anthropic", lambda answer: (answer["stop_reason"], answer["content"]) == ("refusal", [])),
        ("responses", lambda answer: answer["incomplete_details"] == {"reason": "content_filter"}),
        ("gemini", lambda answer: answer["candidates"] == [{"index": 0, "finishReason": "SAFETY"}]),
    ],
)
def test_a_withheld_answer_has_the_shape_of_its_api_and_no_text(api, shape):
    said = whole(api, {"content 0": "please stop", "content 1": "please stop"})
    outcome = policy(STOP).check_response(json.dumps(said).encode())
    answer = json.loads(outcome.body)
    assert outcome.action == "block"
    assert shape(answer)
    assert answer["error"]["code"] == "guardrail_patterns"
    assert answer.get("usage") == said.get("usage")
    assert b"please" not in outcome.body


def test_an_answer_that_is_no_json_is_a_text():
    assert policy(MAIL).check_response(b"to a@b\xff").body == "to [EMAIL]\ufffd".encode()
    assert policy(MAIL).check_response(b"to \xff").body == b"to \xff"
    assert policy(STOP).check_response(b"{ stop").action == "block"


def test_an_answer_nested_too_deep_goes_nowhere():
    outcome = policy(STOP).check_response(b'{"a":' * 100 + b"1" + b"}" * 100)
    assert (outcome.action, outcome.status, outcome.code) == ("block", 502, "guardrail_unreadable")


def test_logprobs_of_a_changed_choice_go_away():
    body = b'{"choices":[{"message":{"content":"a@b"},"logprobs":{"content":[]}},{"logprobs":{}}]}'
    assert policy(MAIL).check_response(body).body == (
        b'{"choices":[{"message":{"content":"[EMAIL]"},"logprobs":null},{"logprobs":{}}]}'
    )


def test_an_answer_in_pieces_is_judged_whole():
    told = []
    guard = policy(MAIL).open_stream("json", told=told.extend)
    body = json.dumps(whole("chat", {"content 0": "a@b"})).encode()
    assert guard.feed(body[:50], False) == b""
    assert json.loads(guard.feed(body[50:], True))["choices"][0]["message"]["content"] == "[EMAIL]"
    assert [verdict.rule for verdict in told] == ["mail"]


def test_an_answer_that_is_too_long_goes_nowhere(monkeypatch):
    monkeypatch.setattr(answers, "MAX_ANSWER_BYTES", 10)
    guard = policy(MAIL).open_stream("json")
    assert guard.feed(b"x" * 10, False) == b""
    with pytest.raises(EndBody) as ended:
        guard.feed(b"x", False)
    assert json.loads(ended.value.last)["error"]["code"] == "guardrail_unreadable"


def test_what_nobody_needs_is_not_looked_at():
    compiled = policy(at_work("mail", "a@b", 3, stages=["request"]))
    assert compiled.needs_request
    assert not compiled.needs_response
    assert not compiled.needs_stream
    assert compiled.open_stream("sse") is None
    assert compiled.open_stream("json", Vault()) is None


def test_answers_have_to_be_seen_where_something_may_have_to_be_restored():
    compiled = policy(at_work("mail", "a@b", 3, restores=True, stages=["request"]))
    assert (compiled.needs_response, compiled.needs_stream) == (True, True)
    assert compiled.open_stream("sse") is None


@pytest.mark.parametrize("longest", [None, 513])
def test_a_rule_that_needs_more_than_a_window_is_none_for_streams(longest):
    with pytest.raises(ConfigError, match="finds texts of more than 512 code points"):
        policy(at_work("wide", "x+", longest))
    assert policy(at_work("wide", "x+", longest, stages=["request", "response"])).delay == 0
    assert policy(at_work("wide", "x+", 512)).delay == 543


def parts(*texts):
    content = [{"type": "text", "text": text} for text in texts]
    return json.dumps({"messages": [{"role": "user", "content": content}]}).encode()


def test_what_is_split_over_parts_of_a_message_blocks():
    compiled = policy(STOP, SEEN, MAIL)
    outcome = compiled.check_request(parts("a f", "o", "x and please s", "top a@b"))
    assert (outcome.action, outcome.param) == ("block", "messages[0].content[2].text")
    told = [(verdict.rule, verdict.path, verdict.start, verdict.end) for verdict in outcome.verdicts]
    assert told == [
        ("mail", "messages[0].content[3].text", 4, 7),
        ("seen", "messages[0].content[0].text", 2, 5),
        ("stop", "messages[0].content[2].text", 13, 17),
    ]


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "user", "content": ["please s", "top"]}]},
        {"messages": [{"role": "user", "content": ["please s", {"type": "text", "text": "top"}]}]},
        {"messages": [{"content": [{"type": "text", "text": "s"}, {"type": "refusal", "refusal": "top"}]}]},
        {"system": ["s", "top"], "messages": []},
    ],
)
def test_parts_may_be_strings_and_say_it_in_other_fields(body):
    assert policy(STOP).check_request(json.dumps(body).encode()).code == "guardrail_patterns"


def test_lists_of_texts_that_nobody_reads_as_one_are_not_joined():
    body = json.dumps({"prompt": ["s", "top"], "input": ["s", "top"], "stop": ["s", "top"]}).encode()
    assert policy(STOP).check_request(body).body is body


def test_what_is_split_over_messages_or_would_only_be_masked_passes():
    compiled = policy(STOP, MAIL)
    assert compiled.check_request(chat("s", "top")).action == "pass"
    body = parts("a", "@b")
    assert compiled.check_request(body).body is body
    assert (
        policy(SEEN).check_request(parts("fox", "", "fox")).verdicts[1].path == "messages[0].content[2].text"
    )
