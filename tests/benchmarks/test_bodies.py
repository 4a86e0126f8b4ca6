"""Chat bodies of an exact size."""

import json

import pytest

from benchmarks.bodies import chat_bodies


def system_of(body: bytes) -> str:
    return json.loads(body)["messages"][0]["content"]


@pytest.mark.parametrize("size_bytes", [300, 2048, 40_960])
@pytest.mark.parametrize("stream", [False, True])
def test_bodies_have_the_size_and_differ(size_bytes: int, stream: bool):
    bodies = chat_bodies(count=40, size_bytes=size_bytes, seed=1, stream=stream)
    assert {len(body) for body in bodies} == {size_bytes}
    assert len(set(bodies)) == 40
    assert {json.loads(body).get("stream", False) for body in bodies} == {stream}


def test_half_of_the_bodies_share_eight_system_prompts():
    bodies = chat_bodies(count=64, size_bytes=2048, seed=1, stream=False)
    assert len({system_of(body) for body in bodies[0::2]}) == 8
    assert len({system_of(body) for body in bodies[1::2]}) == 32


def test_the_seed_decides():
    first, again, other = (
        chat_bodies(count=4, size_bytes=500, seed=seed, stream=False) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_a_size_that_holds_no_chat_is_refused():
    with pytest.raises(ValueError, match="a body needs at least 170 bytes, got 100"):
        chat_bodies(count=1, size_bytes=100, seed=1, stream=False)
