"""Keys name prefixes: equal exactly when everything up to the end of their piece is equal."""

import random

import xxhash
from hypothesis import given
from hypothesis import strategies as st

from epp.kvcache import block_hash
from epp.kvcache.block_hash import block_keys, blocks_at, chain_seed, keys_within


def test_keys_are_a_chain_of_xxh3_seeded_by_the_key_before():
    data = bytes(range(32))
    first = xxhash.xxh3_64_intdigest(data[:16], 9)
    second = xxhash.xxh3_64_intdigest(data[16:], first)
    assert block_keys(data, 4, 9, 100) == [first, second]


def test_only_full_blocks_have_keys():
    assert block_keys(b"", 4, 1, 100) == []
    assert block_keys(b"x" * 15, 4, 1, 100) == []
    assert len(block_keys(b"x" * 16, 4, 1, 100)) == 1
    assert len(block_keys(b"x" * 31, 4, 1, 100)) == 1


def test_the_first_blocks_have_a_key_each_then_four_and_then_sixteen_share_one():
    assert [blocks_at(keys) for keys in range(18)] == [*range(17), 20]
    assert [blocks_at(keys) for keys in (31, 32, 33, 34, 124, 1000)] == [76, 80, 96, 112, 1552, 15568]


@given(st.integers(0, 100_000))
def test_so_many_blocks_have_the_keys_that_fit_into_them(blocks: int):
    keys = keys_within(blocks)
    assert blocks_at(keys) <= blocks < blocks_at(keys + 1)


def test_a_piece_is_a_block_or_at_most_a_quarter_of_what_comes_before():
    for keys in range(1, 500):
        piece = blocks_at(keys + 1) - blocks_at(keys)
        assert piece == 1 or piece <= blocks_at(keys) / 4


def test_deep_keys_are_the_hash_of_their_whole_piece():
    data = random.Random(1).randbytes(4 * 2 * 120)
    keys = block_keys(data, 2, 9, 1000)
    expected, begin = [9], 0
    for end in [*range(1, 17), *range(20, 81, 4), 96, 112]:
        expected.append(xxhash.xxh3_64_intdigest(data[begin * 8 : end * 8], expected[-1]))
        begin = end
    assert keys == expected[1:]


def test_a_short_prompt_after_a_long_one_has_the_same_keys_as_before():
    data = random.Random(2).randbytes(4 * 3000)
    before = block_keys(data[:100], 1, 9, 10_000)
    long = block_keys(data, 1, 9, 10_000)
    assert len(long) == keys_within(3000)
    assert block_keys(data[:100], 1, 9, 10_000) == before == long[: len(before)]


def test_no_more_blocks_than_allowed_are_hashed():
    assert block_keys(b"x" * 64, 4, 1, 2) == block_keys(b"x" * 64, 4, 1, 100)[:2]
    assert block_keys(b"x" * 64, 4, 1, 0) == []
    assert len(block_keys(b"x" * 400, 1, 1, 19)) == 16


def test_blocks_that_end_in_zeros_are_told_apart():
    assert block_keys(b"ab\0\0", 1, 1, 9) != block_keys(b"ab\0\1", 1, 1, 9)


def test_models_and_salts_share_no_keys():
    seeds = {chain_seed("m"), chain_seed("n"), chain_seed("m", "salt"), chain_seed("msalt"), chain_seed("")}
    assert len(seeds) == 5
    assert chain_seed("m") == chain_seed("m", "")
    assert chain_seed("\ud800") != chain_seed("m")


@given(
    st.integers(0, 130),
    st.binary(max_size=80),
    st.integers(0, 200),
    st.binary(max_size=80),
    st.integers(1, 4),
)
def test_prompts_share_exactly_the_keys_of_their_common_pieces(
    common: int, a: bytes, length: int, b: bytes, block: int
):
    shared = random.Random(common).randbytes(common * block * 4)
    tail = random.Random(length).randbytes(length)
    a, b = shared + a + tail, shared + b + tail
    keys_a, keys_b = block_keys(a, block, 7, 1000), block_keys(b, block, 7, 1000)
    equal = 0
    while equal < min(len(keys_a), len(keys_b)):
        end = blocks_at(equal + 1) * block * 4
        if a[:end] != b[:end]:
            break
        equal += 1
    same = [x == y for x, y in zip(keys_a, keys_b, strict=False)]
    assert same == [True] * equal + [False] * (len(same) - equal)


def test_long_names_are_hashed_but_not_kept():
    before = block_hash._kept_seed.cache_info().currsize
    assert (
        chain_seed("m", "z" * 1_000_000) == chain_seed("m", "z" * 1_000_000) != chain_seed("m", "z" * 999_999)
    )
    assert block_hash._kept_seed.cache_info().currsize == before
