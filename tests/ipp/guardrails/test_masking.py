"""Placeholders: one for each value, and none that a client wrote."""

from __future__ import annotations

import pytest

from ipp.guardrails.masking import MAX_PLACEHOLDERS, Vault, hidden, label
from ipp.guardrails.matches import Match


@pytest.mark.parametrize(
    ("kind", "name"),
    [("email", "EMAIL"), ("nationalId", "NATIONAL_ID"), ("word 17", "WORD"), ("12", "HIDDEN")],
)
def test_labels(kind, name):
    assert label(kind) == name


def test_the_same_value_has_the_same_placeholder():
    vault = Vault()
    assert not vault
    made = [
        vault.placeholder(kind, value)
        for kind, value in [("email", "a"), ("ip", "a"), ("email", "b"), ("email", "a")]
    ]
    assert made == ["<EMAIL_1>", "<IP_1>", "<EMAIL_2>", "<EMAIL_1>"]
    assert len(vault) == 3


def test_what_a_client_wrote_is_not_given_out():
    vault = Vault()
    vault.avoid(["<EMAIL_1> and <EMAIL_3", '{"x":"\\u003cEMAI\\u004c_2\\u003E"}'])
    assert [vault.placeholder("email", value) for value in "ab"] == ["<EMAIL_3>", "<EMAIL_4>"]


def test_a_full_vault_gives_nothing_out():
    vault = Vault()
    for number in range(MAX_PLACEHOLDERS):
        vault.placeholder("ip", str(number))
    assert vault.placeholder("ip", "one more") is None
    assert vault.placeholder("ip", "0") == "<IP_1>"


def test_what_is_hidden_for_good():
    assert hidden("email", Match(0, 1, "email"), names=True) == "[EMAIL]"
    assert hidden("word 1", Match(0, 1, "word 1"), names=False) == "***"
    assert hidden("tag", Match(0, 1, "tag", replacement=""), names=False) == ""
