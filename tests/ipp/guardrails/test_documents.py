"""Answers that are several documents, half of one, or none: every string is looked at as what it says."""

from __future__ import annotations

import json

import pytest

from tests.support.guardrail_policies import at_work, policy

STOP = at_work("stop", "stop", None, mode="block", stages=["response"])
MAIL = at_work("mail", r"\w+@\w+", None, stages=["response"])
FLAG = at_work("flag", "cat", None, mode="flag", stages=["response"])
PART = '{"choices":[{"index":0,"delta":{"content":"%s"}}]}'


@pytest.mark.parametrize(
    "body",
    [
        r'{"a":"st\u006fp',
        '\ufeff{"a":"st\\u006fp"}',
        '{"a":"x"}\n{"a":"st\\u006fp"}',
        '{"response":"st"}\r\n{"response":"op"}',
        '\x1e{"response":"st"}\n\x1e{"response":"op"}\n',
        '"st""op"',
        (PART % "st") + (PART % "op"),
        "[" + PART % "st" + "," + PART % "op" + "]",
        '{"a":"x"} and then: stop',
        "[not, JSON: stop]",
    ],
)
def test_what_blocks_is_found_in_each_and_across(body):
    outcome = policy(STOP).check_response(body.encode())
    assert (outcome.action, outcome.code) == ("block", "guardrail_patterns")


def test_what_is_masked_stays_json():
    body = '{"a":"x\\u0061@b\\n"}\n{"a":"c@d"'
    assert policy(MAIL).check_response(body.encode()).body.decode() == '{"a":"***\\n"}\n{"a":"***"'


def test_what_would_have_to_be_masked_across_is_withheld_and_what_is_flagged_is_told():
    outcome = policy(MAIL).check_response(b'{"response":"to a@"}\n{"response":"b"}')
    assert (outcome.action, outcome.param) == ("block", "response")
    body = b'{"response":"a ca"}\n{"response":"t"}'
    outcome = policy(FLAG).check_response(body)
    assert (outcome.action, outcome.body, len(outcome.verdicts)) == ("flag", body, 1)


def test_items_of_an_array_that_no_api_streams_stand_for_themselves():
    body = json.dumps([{"text": "st"}, {"text": "op"}]).encode()
    assert policy(STOP).check_response(body).body == body


def test_a_number_alone_is_text():
    card = at_work("card", r"\d{4}", None, stages=["response"])
    assert policy(card).check_response(b"1234").body == b"***"


def test_text_alone_is_text():
    assert policy(MAIL).check_response(b"write to a@b\n").body == b"write to ***\n"
