"""Log lines: one per record, whatever is in the message."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from dataplane.observability.logs import MAX_MESSAGE, TRACE, configure, level_of_verbosity


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """A place for log lines; the root logger is put back afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.parametrize(
    ("verbosity", "level"),
    [
        (0, logging.WARNING),
        (1, logging.WARNING),
        (2, logging.INFO),
        (3, logging.INFO),
        (4, logging.DEBUG),
        (5, TRACE),
        (9, TRACE),
    ],
)
def test_verbosity_numbers_are_those_of_go(verbosity: int, level: int):
    assert level_of_verbosity(verbosity) == level


def test_text_lines_carry_time_level_logger_and_message(stream: io.StringIO):
    configure(logging.INFO, stream=stream)
    logging.getLogger("epp.app").info("listening on %d", 9002)
    stamp, _, rest = stream.getvalue().partition(" ")
    assert len(stamp) == len("2025-01-02T03:04:05.678Z")
    assert rest == "INFO epp.app: listening on 9002\n"


def test_records_below_the_level_are_dropped(stream: io.StringIO):
    configure(logging.INFO, stream=stream)
    logging.getLogger("epp.app").debug("detail")
    assert stream.getvalue() == ""


def test_a_message_cannot_forge_a_line_or_move_the_cursor(stream: io.StringIO):
    configure(logging.INFO, stream=stream)
    logging.getLogger("x").warning("id %s", "a\nINFO x: forged\r\x1b[2J\u2028\x85")
    assert stream.getvalue().endswith(" WARNING x: id a\\nINFO x: forged\\r\\x1b[2J\\u2028\\x85\n")
    assert stream.getvalue().count("\n") == 1


def test_long_messages_are_cut_and_say_so(stream: io.StringIO):
    configure(logging.INFO, stream=stream)
    logging.getLogger("x").warning("y" * (MAX_MESSAGE + 5))
    assert stream.getvalue().endswith("yyy... (5 more characters)\n")


def test_json_lines_are_objects(stream: io.StringIO):
    configure(logging.INFO, json=True, stream=stream)
    logging.getLogger("epp.app").error("bad \udcff\n")
    (line,) = stream.getvalue().splitlines()
    fields = json.loads(line)
    assert (fields["level"], fields["logger"], fields["msg"]) == ("error", "epp.app", "bad \\udcff\n")


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_exceptions_keep_their_traceback(stream: io.StringIO, as_json: bool):
    configure(logging.INFO, json=as_json, stream=stream)
    try:
        raise LookupError("where is it")
    except LookupError:
        logging.getLogger("x").exception("failed")
    assert "LookupError: where is it" in stream.getvalue()
    assert stream.getvalue().count("\n") == 1 if as_json else "Traceback" in stream.getvalue()


def test_configuring_twice_writes_each_record_once(stream: io.StringIO):
    configure(logging.INFO, stream=io.StringIO())
    configure(logging.INFO, stream=stream)
    logging.getLogger("x").info("once")
    assert stream.getvalue().count("once") == 1
