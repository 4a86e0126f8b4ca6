"""Answers: known lengths, the same by seed, text that tokenizes to the generated tokens."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator import text, tokenizer
from simulator.text import AnswerSource, EchoAnswer


def answer_to(
    source: AnswerSource,
    prompt: bytes,
    *,
    limit: int = 4096,
    wanted: int | None = None,
    exact: bool = False,
    variant: int = 0,
) -> text.Answer:
    return source.answer(prompt, None, limit=limit, wanted=wanted, exact=exact, variant=variant)


def whole_text(answer: text.Answer) -> str:
    escaped, _ = answer.text(0, answer.length)
    decoded: str = json.loads(b'"' + escaped + b'"')
    return decoded


def test_same_seed_and_prompt_give_the_same_answer():
    one, same, other = AnswerSource("random", 1), AnswerSource("random", 1), AnswerSource("random", 2)
    texts = [whole_text(answer_to(source, b"abcd", wanted=50, exact=True)) for source in (one, same, other)]
    assert texts[0] == texts[1] != texts[2]


def test_choices_of_a_prompt_differ():
    source = AnswerSource("random", 0)
    texts = {whole_text(answer_to(source, b"abcd", wanted=50, exact=True, variant=n)) for n in range(8)}
    assert len(texts) == 8


@pytest.mark.parametrize("length", [1, 2, 7, 40_000], ids=str)
def test_exact_length_ends_by_length(length: int):
    answer = answer_to(AnswerSource("random", 0), b"abcd", limit=50_000, wanted=length, exact=True)
    assert (answer.length, answer.finish_reason) == (length, "length")
    assert len(whole_text(answer)) == 4 * length


def test_context_limits_the_answer():
    answer = answer_to(AnswerSource("random", 0), b"abcd", limit=3)
    assert (answer.length, answer.finish_reason) == (3, "length")


def test_single_token_is_text_and_not_the_end_marker():
    for prompt in range(50):
        answer = answer_to(AnswerSource("random", 0), bytes([prompt] * 4), wanted=1)
        assert (answer.length, answer.finish_reason, len(whole_text(answer))) == (1, "length", 4)


@pytest.mark.parametrize("wanted", [2, 6, 100, 120, 121, 1000], ids=str)
def test_lengths_fill_the_six_buckets_in_their_shares(wanted: int):
    source = AnswerSource("random", 0)
    lengths = [answer_to(source, n.to_bytes(4, "little"), wanted=wanted).length for n in range(4000)]
    assert min(lengths) >= 2
    assert max(lengths) <= wanted
    if wanted == 1000:
        edges = [20, 40, 60, 960, 980, 1000]
        shares = [sum(low < n <= high for n in lengths) / 4000 for low, high in zip([0, *edges], edges)]  # noqa: B905
        assert shares == pytest.approx([0.2, 0.3, 0.2, 0.05, 0.1, 0.15], abs=0.03)


def test_answers_that_end_by_themselves_end_with_the_marker():
    source = AnswerSource("random", 0)
    answers = [answer_to(source, n.to_bytes(4, "little"), wanted=50) for n in range(200)]
    stopped = [answer for answer in answers if answer.finish_reason == "stop"]
    assert len(stopped) > 150
    for answer in stopped:
        assert answer.tokens(0, answer.length)[-4:] == tokenizer.END
        assert len(whole_text(answer)) == 4 * (answer.length - 1)


@given(st.integers(0, 2**32 - 1), st.integers(1, 300), st.lists(st.integers(1, 50)), st.booleans())
def test_text_in_pieces_is_the_text_and_tokenizes_to_the_tokens(
    prompt: int, wanted: int, pieces: list[int], exact: bool
):
    answer = answer_to(AnswerSource("random", 3), prompt.to_bytes(4, "little"), wanted=wanted, exact=exact)
    cursor, generated, parts = 0, 0, b""
    for step in [*pieces, answer.length]:
        generated = min(generated + step, answer.length)
        part, cursor = answer.text(cursor, generated)
        parts += part
    assert parts.decode() == whole_text(answer)
    marker = tokenizer.END if answer.finish_reason == "stop" else b""
    assert tokenizer.encode_text(whole_text(answer)) + marker == answer.tokens(0, answer.length)


@given(st.text(max_size=60), st.integers(1, 30), st.lists(st.integers(1, 3)))
def test_echo_repeats_the_prompt_in_whole_characters(prompt: str, limit: int, steps: list[int]):
    prompt = prompt.encode("utf-8", "ignore").decode()
    answer = EchoAnswer(prompt, limit)
    cursor, generated, spoken = 0, 0, ""
    for step in [*steps, answer.length]:
        generated = min(generated + step, answer.length)
        part, cursor = answer.text(cursor, generated)
        spoken += json.loads(b'"' + part + b'"')
    whole = -(-len(prompt.encode()) // 4) + 1
    if whole <= limit:
        assert (spoken, answer.length, answer.finish_reason) == (prompt, whole, "stop")
    else:
        assert prompt.startswith(spoken)
        assert (answer.length, answer.finish_reason) == (limit, "length")
        assert len(spoken.encode()) > 4 * limit - 4
    assert len(answer.tokens(0, answer.length)) == 4 * answer.length


def test_echo_mode_repeats_the_last_text_or_the_prompt():
    source = AnswerSource("echo", 0)
    prompt = tokenizer.encode_text("the prompt")
    spoken = source.answer(prompt, lambda: "last", limit=99, wanted=None, exact=False, variant=0)
    assert whole_text(spoken) == "last"
    assert whole_text(answer_to(source, prompt)) == "the prompt"


def test_no_answer_has_no_tokens_and_no_text():
    nothing = text.NoAnswer()
    assert (nothing.length, nothing.tokens(0, 0), nothing.text(0, 0)) == (0, b"", (b"", 0))


def test_natural_lengths_scatter_around_forty():
    draw = random.Random(0)
    lengths = [text._natural_length(draw) for _ in range(4000)]
    assert sum(lengths) / len(lengths) == pytest.approx(40, abs=1.5)
    assert min(lengths) == 2
