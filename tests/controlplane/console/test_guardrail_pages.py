"""Pages of guardrail policies: the list, one policy in words, and the pane in which it is tried."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from controlplane.core.documents import apply
from controlplane.core.models import AuditEntry
from controlplane.core.roles import Role
from controlplane.policies import trials
from controlplane.policies.models import GuardrailPolicy
from tests.support.console import person, text_of
from tests.support.controlplane import ADMIN, GUARDRAILS

pytestmark = pytest.mark.django_db

TRY = "/guardrails/baseline/try/"


def policy(name: str, word: str, *, rule: str = "words", mode: str = "block", **spec: Any) -> dict[str, Any]:
    said = {"name": rule, "type": "keywords", "mode": mode, "parameters": {"words": [word]}}
    return {
        "apiVersion": "pointsman.dev/v1",
        "kind": "GuardrailPolicy",
        "metadata": {"name": name},
        "spec": {"rules": [said], **spec},
    }


@pytest.fixture
def policies() -> None:
    apply(
        ADMIN,
        [
            GUARDRAILS,
            policy("birds", "sparrow"),
            policy("first", "eagle", priority=20),
            policy("off", "owl", enabled=False, tenants=["acme"]),
        ],
    )


def words(page: str) -> str:
    """What a page says, without its tags."""
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", page)))


def marked(page: str) -> list[tuple[str, str]]:
    """Action and text of every piece that is highlighted."""
    found = re.findall(r'<mark class="hit hit-(\w+)">(?:<sup>[\d ]+</sup>)?(.*?)</mark>', page)
    return [(action, html.unescape(re.sub(r"<[^>]+>", "", text))) for action, text in found]


def tried(
    sample: str, name: str = "baseline", *, role: Role = Role.VIEWER, part: bool = False, **said: str
) -> Any:
    headers = {"HX-Request": "true"} if part else None
    return person(role).post(f"/guardrails/{name}/try/", {"sample": sample, **said}, headers=headers)


@pytest.mark.usefixtures("policies")
def test_the_list_is_in_the_order_in_which_policies_come_and_says_whom_each_is_for() -> None:
    page = text_of(person(Role.VIEWER).get("/guardrails/"))
    rows = [words(row) for row in re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL)[1:]]
    assert [row.split()[0] for row in rows] == ["first", "baseline", "birds", "off"]
    assert "In force 10 Tenants research team-* Pools pool pii mask patterns block" in rows[1]
    assert "request, response, stream" in rows[1]
    assert "All traffic" in rows[2]
    assert "Off 0 Tenants acme" in rows[3]
    assert "Verdicts are not heard of here" in page


@pytest.mark.usefixtures("policies")
def test_a_policy_is_said_in_plain_words_with_what_beats_it() -> None:
    page = words(text_of(person(Role.VIEWER).get("/guardrails/birds/")))
    assert "words keywords block requests Looks for 1 word: “sparrow”. The request is refused." in page
    assert "Never counts: first has a rule of this name, comes first and holds for all" in page
    assert re.search(
        r"first 20 before this one all of it words baseline 10 before this one some of it none", page
    )
    assert "off" not in page.partition("Other policies")[2].partition("Its document")[0]
    personal = words(text_of(person(Role.VIEWER).get("/guardrails/baseline/")))
    assert "Looks for e-mail addresses and IBANs." in personal
    assert "The client is told: “Internal names stay here.”" in personal


@pytest.mark.usefixtures("policies")
def test_a_text_is_tried_and_every_match_shown_in_its_place() -> None:
    page = text_of(tried("to ada@example.org\nabout zebra-7, pass\u200bword", sort="text"))
    assert marked(page) == [("mask", "ada@example.org"), ("block", "zebra-7")]
    assert '<span class="unseen">U+200B</span>' in page
    said = words(page)
    assert "Blocked 2 matches · stage request · dialect chat · tenant research · pool pool" in said
    assert "1 baseline/personal-data email mask messages[0].content 3 18 1" in said
    assert "2 baseline/codenames pattern 0 block messages[0].content 25 32 1" in said
    error = re.search(r"What the client gets, with status 400</h3><pre[^>]*>(.*?)</pre>", page, re.DOTALL)
    assert error is not None
    assert json.loads(html.unescape(error[1]))["error"] == {
        "message": "Internal names stay here.",
        "type": "invalid_request_error",
        "param": "messages[0].content",
        "code": "guardrail_patterns",
    }
    assert "to ada@example.org" in page  # what was written is still there


@pytest.mark.usefixtures("policies")
@pytest.mark.parametrize("dialect", ["chat", "messages", "gemini"])
def test_what_is_masked_is_shown_as_it_goes_on_in_each_stage(dialect: str) -> None:
    for stage in ("request", "response", "stream"):
        page = text_of(tried("to ada@example.org", sort="text", stage=stage, dialect=dialect))
        assert marked(page) == [("mask", "ada@example.org")]
        left = re.search(r"What goes on instead</h3><pre[^>]*>(.*?)</pre>", page)
        assert left is not None
        assert html.unescape(left[1]) == ("to <EMAIL_1>" if stage == "request" else "to [EMAIL]")


@pytest.mark.usefixtures("policies")
def test_a_whole_request_is_tried_as_json_and_htmx_gets_the_result_alone() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": 'zebra-7 "x" <b>'}], "seed": 7}
    page = text_of(tried(json.dumps(body), sort="body", part=True))
    assert ("<html" in page, page.lstrip().startswith('<div id="tried"')) == (False, True)
    assert marked(page) == [("block", "zebra-7")]
    assert "\\&quot;x\\&quot; &lt;b&gt;" in page


@pytest.mark.usefixtures("policies")
def test_a_corpus_is_counted_and_lines_that_are_not_as_expected_come_first() -> None:
    lines = [
        {"text": "hello", "expect": "pass"},
        {"text": "zebra-1", "expect": "mask"},
        {"text": "a@b.example zebra-2", "expect": "block"},
        {"body": {"prompt": "a@b.example"}},
    ]
    page = text_of(tried("\n".join(map(json.dumps, lines)), sort="corpus"))
    said = words(page)
    assert "4 lines 1 not as expected block 2 mask 1 flag 0 pass 1" in said
    assert "baseline/codenames 2" in said
    assert "baseline/personal-data 2" in said
    assert re.findall(r"<strong>Line (\d)</strong>", page) == ["2", "1", "3", "4"]
    assert "Blocked expected mask" in said


@pytest.mark.usefixtures("policies")
def test_a_policy_is_tried_alone_or_with_all_others_and_although_it_is_off() -> None:
    assert marked(text_of(tried("a sparrow", "birds", sort="text"))) == [("block", "sparrow")]
    assert marked(text_of(tried("a sparrow, an eagle", "birds", sort="text", together="on"))) == [
        ("block", "eagle")
    ]
    assert marked(text_of(tried("an owl", "off", sort="text"))) == [("block", "owl")]
    others = words(text_of(tried("zebra-7", sort="text", together="on", tenant="research")))
    assert "Off, or for other traffic: off." in others
    elsewhere = words(text_of(tried("an owl", "off", sort="text", tenant="other")))
    assert "No policy that was tried holds for this tenant, model and pool" in elsewhere


@pytest.mark.usefixtures("policies")
@pytest.mark.parametrize(
    ("sample", "said", "told"),
    [
        ("", {"sort": "text"}, "This field is required"),
        ("{", {"sort": "body"}, "is no JSON"),
        ("[1]", {"sort": "body"}, "must be a JSON object"),
        ("[" * 5000, {"sort": "body"}, "is no JSON"),
        ("{}", {"sort": "body", "stage": "stream"}, "is no stage of a body"),
        ("x", {"sort": "text", "dialect": "embeddings", "stage": "response"}, "hold no text"),
        ("x", {"sort": "poem"}, "Select a valid choice"),
        ('{"text": "a"}\n{"texts": 1}\nno', {"sort": "corpus"}, "line 3"),
        ('{"text": "a", "expect": "maybe"}', {"sort": "corpus"}, "must be one of block, mask, flag, pass"),
        ("x" * 200_001, {"sort": "text"}, "longer than 200,000 characters"),
        ('{"text": "a"}\n' * (trials.MAX_LINES + 1), {"sort": "corpus"}, "has 1001 lines"),
    ],
)
def test_what_cannot_be_tried_says_why(sample: str, said: dict[str, str], told: str) -> None:
    answer = tried(sample, **said)
    assert (answer.status_code, told in words(text_of(answer))) == (422, True)
    part = tried(sample, part=True, **said)
    assert (part.status_code, told in words(text_of(part))) == (200, True)  # htmx shows no other


def test_what_is_tried_is_kept_nowhere(policies: None) -> None:
    before = AuditEntry.objects.exclude(kind="User").count(), GuardrailPolicy.objects.count()
    tried("zebra-7", sort="text")
    assert (AuditEntry.objects.exclude(kind="User").count(), GuardrailPolicy.objects.count()) == before


@pytest.mark.usefixtures("policies")
def test_pages_ask_for_a_login_have_nothing_inline_and_take_no_post_from_elsewhere() -> None:
    viewer = person(Role.VIEWER)
    for path in ("/guardrails/", "/guardrails/baseline/", "/verdicts/"):
        assert Client().get(path)["Location"] == f"/login/?next={path}"
        assert not re.search(r"<script(?![^>]*src=)|\sstyle=|\son[a-z]+=", text_of(viewer.get(path)))
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = viewer.cookies
    assert strict.post(TRY, {"sample": "x", "sort": "text"}).status_code == 403
    assert viewer.get("/guardrails/none/").status_code == 404
    assert viewer.post("/guardrails/none/try/", {"sample": "x"}).status_code == 404


@pytest.mark.parametrize("path", ["/guardrails/", "/guardrails/p-0-0/"])
def test_pages_ask_the_database_as_often_for_many_policies_as_for_few(path: str) -> None:
    client = person(Role.VIEWER)
    counts = []
    for number in range(2):
        apply(ADMIN, [policy(f"p-{number}-{row}", "word") for row in range(4)])
        with CaptureQueriesContext(connection) as captured:
            client.get(path)
        counts.append(len(captured))
    assert counts[0] == counts[1] <= 8
