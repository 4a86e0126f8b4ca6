"""Personal data and secrets: check digits decide, and streams see what a whole text shows where they can."""

import re

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from dataplane.config.guardrails import Pii
from ipp.guardrails import checksums
from ipp.guardrails.matches import MAX_STREAM_MATCH
from ipp.guardrails.rules import secrets
from ipp.guardrails.rules.pii import PiiRule
from ipp.guardrails.scanning import Scanner
from tests.support.guardrail_rules import found, made

KEY = "sk-" + "proj-Ab3dEf6hIj9lMn2pQr5tUv8x"
TOKEN = "eyJ" + "hbGciOiJIUzI1NiJ9.eyJ" + "zdWI1OiIx" * 100 + "." + "aB3d" * 11


@pytest.mark.parametrize("entity", ["email", "phone", "iban", "card", "nationalId", "ip", "secret"])
def test_looks_for_the_entities_it_is_told_and_no_others(entity: str):
    text = f"a@b.de, +49 30 901820, DE89370400440532013000, 4111111111111111, 123-45-6789, 192.168.1.9, {KEY}"
    kinds = {kind.partition(".")[0] for kind, _ in found(made("pii", {"entities": [entity]}), text)}
    assert kinds == {entity}


@pytest.mark.parametrize(
    ("judge", "good"),
    [
        (checksums.luhn, "79927398713"),
        (checksums.card, "4111111111111111"),
        (checksums.iban, "GB29NWBK60161331926819"),
        (checksums.verhoeff, "234123412346"),
        (checksums.german_tax, "86095742719"),
        (checksums.french, "269054958815780"),
        (checksums.polish, "44051401359"),
        (checksums.norwegian, "01010750160"),
        (checksums.swiss, "7569217076985"),
        (checksums.brazilian, "52998224725"),
        (checksums.japanese, "123456789018"),
        (checksums.turkish, "10000000146"),
        (checksums.british_health, "9434765919"),
        (checksums.belgian, "85073003328"),
        (checksums.south_african, "8001015009087"),
    ],
)
def test_one_wrong_digit_is_told(judge, good: str):
    place = len(good) - 1
    changed = good[:place] + str((int(good[place]) + 1) % 10)
    assert judge(good)
    assert not judge(changed)


@pytest.mark.parametrize(
    ("judge", "good", "bad"),
    [
        (checksums.spanish, "12345678Z", "12345678A"),
        (checksums.italian, "RSSMRA85T10A562S", "RSSMRA85T10A562T"),
        (checksums.chinese, "11010519491231002X", "110105194912310021"),
        (checksums.finnish, "131052308T", "131052308U"),
        (checksums.mexican, "HEGG560427MVZRRL04", "HEGG560427MVZRRL05"),
        (checksums.korean, "9001011234567", "9013011234567"),
    ],
)
def test_one_wrong_letter_is_told(judge, good: str, bad: str):
    assert (judge(good), judge(bad)) == (True, False)


def test_a_card_behind_a_number_that_looks_like_the_beginning_of_one_is_found():
    rule = made("pii", {"entities": ["card"]})
    assert found(rule, "4999 4111 1111 1111 1111.") == [("card", "4111 1111 1111 1111")]


def test_digits_of_other_scripts_are_digits():
    rule = made("pii", {"entities": ["card"]})
    text = "カード４１１１ １１１１ １１１１ １１１１ と ٤١١١١١١١١١١١١١١١"
    assert [kind for kind, _ in found(rule, text)] == ["card", "card"]


def test_a_range_of_addresses_is_one_find_and_a_longer_number_none():
    rule = made("pii", {"entities": ["ip"]})
    assert found(rule, "from 10.0.0.1-10.0.0.9 on; pkg-1.2.3.4-x, 1.2.3.4.5, 127.0.0.1") == [
        ("ip.v4", "10.0.0.1-10.0.0.9")
    ]


def test_an_iban_ends_where_its_country_says():
    rule = made("pii", {"entities": ["iban"]})
    assert found(rule, "DE89 3704 0044 0532 0130 00 BIC COBADEFF") == [
        ("iban", "DE89 3704 0044 0532 0130 00")
    ]


def test_the_whole_of_a_long_secret_is_found_and_in_streams_piece_after_piece():
    whole = made("pii", {"entities": ["secret"]})
    streaming = made("pii", {"entities": ["secret"]}, streaming=True)
    assert found(whole, f"see {TOKEN}.") == [("secret.jwt", TOKEN)]
    pieces = found(streaming, f"see {TOKEN}.")
    assert len(pieces) > 1
    assert all(len(text) <= MAX_STREAM_MATCH for _, text in pieces)
    left = f"see {TOKEN}."
    for _, text in pieces:
        left = left.replace(text, "", 1)
    assert len(re.sub(r"\W", "", left)) < 60


def test_kinds_of_secrets_say_whose_they_are():
    rule = made("pii", {"entities": ["secret"]})
    assert [kind for kind, _ in found(rule, f"{KEY} and password=x9Yq2zR7w")] == [
        "secret.openai",
        "secret.assignment",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "a\u212aX89 3704 0044 0532 0130 00",
        "\u212a\u017f89370400440532013000",
        "DE8937040044053201300\u212a",
        "12345678\u017f",
        "RSSMRA85T10A562\u017f",
        "GOME850101HDFRR\u017f09",
        "131052-308\u017f",
    ],
    ids=ascii,
)
def test_letters_that_are_those_of_ascii_only_without_regard_to_case_make_no_number(text: str):
    rule = PiiRule(Pii(entities=["iban", "nationalId"]), streaming=False)
    assert rule.find(text) == []


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("aA1/"), st.integers(1, 200)), max_size=8))
def test_pieces_of_keys_are_those_that_are_found_from_every_place(runs):
    """What is left out of a long run is nothing that a search from each of its characters would find."""
    raw = b"x" * 3 + b"".join(character.encode() * count for character, count in runs)
    wanted, at = [], 0
    while at < len(raw):
        value = raw[at : at + MAX_STREAM_MATCH]
        signs = value.count(b"/")
        mixed = value.upper() != value != value.lower() and b"1" in value and 10 * signs <= len(value)
        if len(value) >= 60 and mixed:
            wanted.append((at, at + len(value)))
            at += len(value)
        else:
            at += 1
    scanner = Scanner([item for item in secrets.items(streaming=True) if item.kind == "secret.piece"])
    assert [match[:2] for match in scanner.find(raw.decode())] == wanted
