"""The cache of header blocks keeps what is asked for again, stays bounded and never mixes requests up."""

import hpack
from hypothesis import given
from hypothesis import strategies as st

from dataplane.extproc.http2 import Limits
from dataplane.extproc.http2.heads import HeadReader
from tests.dataplane.extproc.http2_client import PATH, REQUEST, block


def reader(**limits: int) -> HeadReader:
    return HeadReader({PATH: lambda writer, headers: None}, Limits(**limits))  # type: ignore[dict-item, return-value]


def numbered(number: int) -> bytes:
    return block([*REQUEST, (b"x-number", str(number).encode())])


def test_block_that_is_asked_for_again_outlives_many_that_are_not():
    heads = reader(max_cached_heads=8)
    usual = heads.request(block(), None)
    for number in range(100):
        heads.request(numbered(number), None)
        if number % 3 == 0:
            assert heads.request(block(), None) is usual
    assert len(heads.known) <= 4


def test_block_that_is_not_asked_for_again_is_forgotten():
    heads = reader(max_cached_heads=8)
    first = heads.request(numbered(0), None)
    for number in range(1, 20):
        heads.request(numbered(number), None)
    again = heads.request(numbered(0), None)
    assert again is not first
    assert again == first


def test_long_blocks_are_not_kept():
    heads = reader(max_cached_block=200)
    heads.request(block([*REQUEST, (b"x-long", b"v" * 300)]), None)
    assert heads.known == {}


def test_refused_requests_are_kept_like_served_ones():
    heads = reader()
    refused = heads.request(block([*REQUEST[:2], (b":path", b"/nobody"), *REQUEST[3:]]), None)
    assert refused.grpc_error == 12
    assert list(heads.known.values()) == [refused]


def test_blocks_that_need_a_table_are_not_kept():
    heads = reader()
    heads.request(block(), heads.new_decoder())
    assert heads.known == {}


@given(st.lists(st.integers(0, 9), max_size=40))
def test_cached_head_is_the_decoded_head(numbers: list[int]):
    heads = reader(max_cached_heads=4)
    encoder = hpack.Encoder()
    encoder.header_table_size = 0
    for number in numbers:
        fields = [*REQUEST, (b"x-number", str(number).encode())]
        assert list(heads.request(encoder.encode(fields), None).fields) == fields
