"""Structs are shown as an operator would write them, and read back to the same."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from dataplane.config.decode import Duration, decode_struct
from dataplane.config.encode import encode_struct
from dataplane.errors import ConfigError


class Colour(StrEnum):
    RED = "red"


class Leaf(msgspec.Struct, rename="camel", frozen=True):
    port_number: int = 80
    host: str = ""


class Tree(msgspec.Struct, rename="camel", frozen=True):
    ttl: Duration = Duration(90.0)
    pause: Duration | None = Duration(0.05)
    never: Duration | None = None
    zero: Duration = Duration(0.0)
    leaf: Leaf = Leaf()
    leaves: list[Leaf] = []
    labels: dict[str, str] = {}
    pair: tuple[str, ...] = ("a",)
    colour: Colour = Colour.RED
    ratio: float = 0.5


def test_defaults_are_shown_and_what_is_not_given_is_left_out():
    assert encode_struct(Tree(leaves=[Leaf(host="h")])) == {
        "ttl": "90s",
        "pause": "50ms",
        "zero": "0s",
        "leaf": {"portNumber": 80},
        "leaves": [{"portNumber": 80, "host": "h"}],
        "labels": {},
        "pair": ["a"],
        "colour": "red",
        "ratio": 0.5,
    }


def test_what_is_shown_reads_back():
    tree = Tree(ttl=Duration(1.5), pause=Duration(0.001), labels={"a": "b"}, leaves=[Leaf(1, "x")])
    problems: list[ConfigError] = []
    shown: dict[str, Any] = encode_struct(tree)
    assert decode_struct(shown, Tree, "", problems) == tree
    assert problems == []
