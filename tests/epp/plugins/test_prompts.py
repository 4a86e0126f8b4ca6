"""What parsers share: media have stand-ins, and there is a limit to them; token ids are checked."""

import pytest

from dataplane.errors import BadRequestError
from epp.plugins import prompts
from epp.plugins.anthropic_body import parse_messages
from epp.plugins.openai_api import parse_chat
from epp.plugins.prompts import MediaText, check_tokens, output_limit, salted, token_list_bytes


def test_a_stand_in_is_the_same_for_the_same_medium():
    media = MediaText()
    assert media.stand_in("a", 8) == media.stand_in("a", 8) != media.stand_in("b", 8)
    assert len(media.stand_in("a", 8)) == 32


def test_media_beyond_the_limit_are_short_but_told_apart(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(prompts, "MAX_MEDIA_TOKENS", 20)
    media = MediaText()
    texts = [media.stand_in(reference, 8) for reference in ("a", "b", "c", "d")]
    assert [len(text) for text in texts] == [32, 32, 16, 16]
    assert len(set(texts)) == 4


def test_many_small_media_do_not_make_a_huge_prompt():
    count = 20_000
    video = b'{"video_url": "a"},' * count + b'{"text": "x"}'
    chat = parse_chat(b'{"model": "m", "messages": [{"role": "u", "content": [%b]}]}' % video)
    assert len(chat.prompt_text) < 4 * prompts.MAX_MEDIA_TOKENS + 16 * count + 100
    image = b'{"source": {"url": "a"}},' * count + b'{"text": "x"}'
    messages = parse_messages(b'{"model": "m", "messages": [{"role": "u", "content": [%b]}]}' % image)
    assert len(messages.prompt_text) < 4 * prompts.MAX_MEDIA_TOKENS + 16 * count + 100


def test_token_ids_are_32_bit_numbers():
    check_tokens([], "x")
    check_tokens([0, (1 << 32) - 1], "x")
    for tokens in ([-1], [1 << 32]):
        with pytest.raises(BadRequestError, match="x has a token id outside 0 to 4294967295"):
            check_tokens(tokens, "x")
    assert token_list_bytes([1, 258]) == b"\1\0\0\0\2\1\0\0"


def test_negative_limits_are_none():
    assert [output_limit(tokens) for tokens in (None, -1, 0, 5)] == [None, None, 0, 5]


def test_media_are_part_of_the_salt():
    assert salted("a", b"") == "a"
    assert salted("a", b"x") != salted("a", b"y")
    assert salted("a", b"x").startswith("a/")
