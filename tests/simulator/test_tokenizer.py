"""Tokens of texts and chats: prefix-stable, reversible, never confused with markers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator import tokenizer


@pytest.mark.parametrize(
    ("text", "count"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("é" * 3, 2)], ids=repr
)
def test_four_bytes_are_a_token(text: str, count: int):
    assert len(tokenizer.encode_text(text)) == 4 * count


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_text_survives_tokenization(text: str):
    assert tokenizer.decode(tokenizer.encode_text(text)) == text


@given(st.lists(st.integers(0, tokenizer.MAX_TOKEN_ID)))
def test_token_ids_survive_packing(ids: list[int]):
    assert tokenizer.to_ids(tokenizer.from_ids(ids)) == ids


@pytest.mark.parametrize("bad", [[-1], [2**32], ["a"], [1.5], [None]], ids=repr)
def test_what_is_no_token_id_is_refused(bad: list[object]):
    with pytest.raises((TypeError, OverflowError)):
        tokenizer.from_ids(bad)  # type: ignore[arg-type]


roles = st.sampled_from(["system", "user", "assistant", "tool", "developer", "critic"])
messages = st.lists(st.tuples(roles, st.text().map(lambda text: text.encode("utf-8", "ignore").decode())))


@given(messages, messages)
def test_longer_conversation_keeps_the_tokens_of_the_shorter(
    start: list[tuple[str, str]], more: list[tuple[str, str]]
):
    def encode(chat: list[tuple[str, str]]) -> bytes:
        return tokenizer.encode_chat((role, tokenizer.encode_text(text)) for role, text in chat)

    shorter, longer = encode(start), encode(start + more)
    assert longer[: len(shorter) - 4] == shorter[:-4]


def test_answer_appended_as_a_message_continues_the_prompt():
    prompt = tokenizer.encode_chat([("user", tokenizer.encode_text("hi"))])
    answer = tokenizer.encode_text("the cat ") + tokenizer.END
    history = [("user", tokenizer.encode_text("hi")), ("assistant", tokenizer.encode_text("the cat "))]
    assert tokenizer.encode_chat(history)[:-4] == prompt + answer


def test_role_is_part_of_the_prompt():
    content = tokenizer.encode_text("same")
    prompts = {tokenizer.encode_chat([(role, content)]) for role in ("user", "system", "critic", "judge")}
    assert len(prompts) == 4


def test_tools_come_before_the_messages():
    content = tokenizer.encode_text("same")
    plain, tooled = (tokenizer.encode_chat([("user", content)], tools) for tools in (b"", b'[{"a":1}]'))
    assert tooled.endswith(plain)
    assert len(tooled) - len(plain) == 4 * (1 + 3 + 1)


def test_equal_media_have_equal_tokens():
    one, same, other = (tokenizer.encode_media(url) for url in ("http://a/1", "http://a/1", "http://a/2"))
    assert (one == same, one == other, len(one)) == (True, False, 4 * tokenizer.MEDIA_TOKENS)


def test_hash_chain_covers_full_blocks_and_depends_on_everything_before():
    ids = tokenizer.from_ids(range(40))
    changed = tokenizer.from_ids([999, *range(1, 40)])
    chain = tokenizer.chain_hashes(ids, 16, 0)
    assert len(chain) == 2
    assert chain == tokenizer.chain_hashes(ids[: 32 * 4], 16, 0)
    assert set(chain).isdisjoint(tokenizer.chain_hashes(changed, 16, 0))
    assert set(chain).isdisjoint(tokenizer.chain_hashes(ids, 16, tokenizer.chain_root("adapter", "")))


def test_hash_chain_can_be_continued():
    ids = tokenizer.from_ids(range(64))
    start = tokenizer.chain_hashes(ids[: 32 * 4], 16, 7)
    assert start + tokenizer.chain_hashes(ids[32 * 4 :], 16, start[-1]) == tokenizer.chain_hashes(ids, 16, 7)


def test_roots_differ_by_adapter_and_salt():
    roots = {tokenizer.chain_root(*pair) for pair in (("", ""), ("a", ""), ("", "a"), ("b", ""))}
    assert len(roots) == 4
