"""Events on a transport: what is written when, and when nothing may be written."""

import asyncio

from simulator.sequence import Sequence
from simulator.sse import HIGH_WATER_BYTES, EventForm, EventStream, StreamedChoice
from simulator.text import AnswerSource

FORM = EventForm(prelude=b"<role>", opening=b"<", closing=b">", final=b"|%b>")


class RecordingTransport(asyncio.Transport):
    """Keeps what is written; refuses writes when closed, as event loops do."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.buffered = 0
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.closed:
            raise RuntimeError("the handler is closed")
        self.written.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def is_closing(self) -> bool:
        return self.closed


def streamed(transport: RecordingTransport, choices: int = 1) -> tuple[EventStream, list[Sequence]]:
    """An open stream and its sequences of five tokens each."""
    stream = EventStream(transport, choices, chunked=False)
    stream.open()
    source = AnswerSource("random", 0)
    sequences = []
    for variant in range(choices):
        answer = source.answer(b"abcd", None, limit=5, wanted=5, exact=True, variant=variant)
        sequences.append(Sequence(b"abcd", answer, StreamedChoice(stream, FORM)))
    return stream, sequences


def generate(sequence: Sequence, tokens: int) -> None:
    """Let a sequence get tokens, as the engine does."""
    for _ in range(tokens):
        sequence.generated += 1
        if sequence.generated == sequence.answer.length:
            sequence.listener.finished(sequence)
        else:
            sequence.listener.token(sequence)


def words(sequence: Sequence, start: int, stop: int) -> bytes:
    return sequence.answer.tokens(start, stop)


async def test_each_token_is_one_write_and_the_end_is_kept():
    transport = RecordingTransport()
    stream, (one,) = streamed(transport)
    generate(one, 4)
    assert transport.written == [
        b"<role><" + words(one, 0, 1) + b">",
        *(b"<" + words(one, n, n + 1) + b">" for n in (1, 2, 3)),
    ]
    assert not stream.done.done()
    generate(one, 1)
    assert stream.done.done()
    assert stream.take_rest() == b"<" + words(one, 4, 5) + b"|length>"
    assert len(transport.written) == 4


async def test_chunked_transfer_frames_every_event():
    transport = RecordingTransport()
    stream = EventStream(transport, 1, chunked=True)
    stream.write(b"x" * 17)
    assert transport.written == [b"11\r\n" + b"x" * 17 + b"\r\n"]


async def test_text_waits_for_a_client_that_is_behind_and_comes_in_one_event():
    transport = RecordingTransport()
    stream, (one,) = streamed(transport)
    generate(one, 1)
    transport.buffered = HIGH_WATER_BYTES + 1
    generate(one, 2)
    assert len(transport.written) == 1
    transport.buffered = 0
    generate(one, 1)
    assert transport.written[1] == b"<" + words(one, 1, 4) + b">"
    assert stream.take_rest() == b""


async def test_tokens_before_the_head_of_the_response_are_sent_with_the_end():
    transport = RecordingTransport()
    stream = EventStream(transport, 1, chunked=False)
    answer = AnswerSource("random", 0).answer(b"abcd", None, limit=5, wanted=3, exact=True, variant=0)
    one = Sequence(b"abcd", answer, StreamedChoice(stream, FORM))
    generate(one, 3)
    assert transport.written == []
    assert stream.take_rest() == b"<role><" + words(one, 0, 3) + b"|length>"


async def test_nothing_is_written_to_a_client_that_has_left():
    transport = RecordingTransport()
    stream, (one, other) = streamed(transport, choices=2)
    transport.closed = True
    generate(one, 5)
    generate(other, 5)
    assert transport.written == []
    assert stream.done.done()


async def test_choice_that_ends_early_is_told_at_once():
    transport = RecordingTransport()
    stream, (one, other) = streamed(transport, choices=2)
    generate(one, 5)
    assert transport.written[-1] == b"<" + words(one, 4, 5) + b"|length>"
    assert not stream.done.done()
    generate(other, 5)
    assert stream.take_rest() == b"<" + words(other, 4, 5) + b"|length>"
