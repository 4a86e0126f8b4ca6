"""Block keys name prefixes: equal exactly when everything up to the block is equal."""

import xxhash
from hypothesis import given
from hypothesis import strategies as st

from epp.kvcache.block_hash import block_keys, chain_seed


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


def test_no_more_blocks_than_allowed_are_hashed():
    assert block_keys(b"x" * 64, 4, 1, 2) == block_keys(b"x" * 64, 4, 1, 100)[:2]
    assert block_keys(b"x" * 64, 4, 1, 0) == []


def test_blocks_that_end_in_zeros_are_told_apart():
    assert block_keys(b"ab\0\0", 1, 1, 9) != block_keys(b"ab\0\1", 1, 1, 9)


def test_models_and_salts_share_no_keys():
    seeds = {chain_seed("m"), chain_seed("n"), chain_seed("m", "salt"), chain_seed("msalt"), chain_seed("")}
    assert len(seeds) == 5
    assert chain_seed("m") == chain_seed("m", "")
    assert chain_seed("\ud800") != chain_seed("m")


@given(st.binary(max_size=80), st.binary(max_size=80), st.integers(1, 4))
def test_prompts_share_exactly_the_keys_of_their_common_blocks(a: bytes, b: bytes, block: int):
    keys_a, keys_b = block_keys(a, block, 7, 1000), block_keys(b, block, 7, 1000)
    common = 0
    size = block * 4
    while common < min(len(keys_a), len(keys_b)) and a[: (common + 1) * size] == b[: (common + 1) * size]:
        common += 1
    shared = [x == y for x, y in zip(keys_a, keys_b, strict=False)]
    assert shared == [True] * common + [False] * (len(shared) - common)
