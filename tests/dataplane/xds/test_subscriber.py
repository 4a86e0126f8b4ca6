"""The worker's side: what it asks for, what it takes, and what it refuses on sight."""

from __future__ import annotations

import pytest

from dataplane.errors import ConfigError
from dataplane.xds.messages import (
    MAX_NUMBER,
    Node,
    Problem,
    Refusal,
    Request,
    Resource,
    Response,
    Version,
    digest_of,
)
from dataplane.xds.subscriber import Held, Offer, Subscriber

NODE = Node("w1", "pool")
KIND = "t"


def sent(number: int, value: bytes = b"1", nonce: str = "n", name: str = "pool") -> Response:
    resources = (Resource(name, value),)
    return Response(KIND, str(Version(number, digest_of(resources))), nonce, resources)


def subscriber() -> Subscriber:
    return Subscriber(NODE, {KIND: ("pool",)})


def offered(to: Subscriber, response: Response) -> Offer:
    found = to.receive(response)
    assert isinstance(found, Offer)
    return found


def test_a_stream_begins_with_who_one_is_and_what_one_has() -> None:
    worker = subscriber()
    assert worker.connect() == [Request(KIND, names=("pool",), node=NODE)]
    first = sent(3)
    assert worker.accept(offered(worker, first)) == Request(KIND, first.version, "n", ("pool",))
    assert worker.connect() == [Request(KIND, first.version, "", ("pool",), NODE)]


def test_a_refusal_keeps_the_version_and_names_every_place() -> None:
    worker = subscriber()
    worker.connect()
    good = sent(3)
    worker.accept(offered(worker, good))
    answer = worker.refuse(offered(worker, sent(4, b"2", "m")), [ConfigError("is bad", path="a.b")])
    assert answer == Request(
        KIND, good.version, "m", ("pool",), None, Refusal("a.b: is bad", (Problem("a.b", "is bad"),))
    )
    assert worker.held[KIND] == Held(Version(3, digest_of(good.resources)), good.resources)


def test_a_set_that_is_in_use_is_not_judged_again() -> None:
    worker = subscriber()
    worker.accept(offered(worker, sent(3)))
    again = offered(worker, sent(5))
    assert again.changed is False
    worker.accept(again)
    assert worker.held[KIND].version.number == 5


@pytest.mark.parametrize(
    ("response", "why"),
    [
        (sent(2, b"2"), "version_info: 2 is older than 3, which is in use"),
        (Response("other", sent(4).version, "n", ()), "type_url: was not asked for"),
        (Response(KIND, "v7", "n", ()), "version_info: is no version of a Pointsman control plane"),
        (
            Response(KIND, sent(4).version, "n", (Resource("pool", b"2"),)),
            "resources: the resources are not those of the version's digest",
        ),
        (sent(4, name="strange"), "resources: 'strange' was not asked for"),
    ],
)
def test_what_cannot_be_right_is_refused_unseen(response: Response, why: str) -> None:
    worker = subscriber()
    worker.accept(offered(worker, sent(3)))
    answer = worker.receive(response)
    assert isinstance(answer, Request)
    assert answer.refusal is not None
    assert (answer.refusal.message, answer.nonce) == (why, "n")
    assert worker.held[KIND].version.number == 3


def test_a_name_that_is_there_twice_is_refused() -> None:
    twice = (Resource("pool", b"1"), Resource("pool", b"2"))
    answer = subscriber().receive(Response(KIND, str(Version(1, digest_of(twice))), "n", twice))
    assert isinstance(answer, Request)
    assert answer.refusal is not None
    assert answer.refusal.message == "resources: a name is there twice"


def test_digests_do_not_depend_on_order_and_tell_names_from_values() -> None:
    one, two = Resource("a", b"bc"), Resource("d", b"")
    assert digest_of([one, two]) == digest_of([two, one])
    assert digest_of([Resource("ab", b"c")]) != digest_of([one])


@pytest.mark.parametrize("text", ["", "7", "7.", ".abc", "-1." + "0" * 32, f"{MAX_NUMBER + 1}." + "0" * 32])
def test_other_texts_are_no_versions(text: str) -> None:
    assert Version.parse(text) is None
    assert Version.parse(f"{MAX_NUMBER}." + "0" * 32) == Version(MAX_NUMBER, "0" * 32)
