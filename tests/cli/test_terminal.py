"""When plain lines are due."""

from cli.terminal import PLAIN_EVERY_S, Line, LineDue

UP = Line("small", "4 endpoints, 1200 requests", (True, 4))


def test_a_line_comes_at_once_when_something_decisive_changes():
    due = LineDue()
    fewer, gone = UP._replace(decisive=(True, 3)), UP._replace(decisive=(False, 0))
    assert [due.is_due(line, 0.0) for line in (UP, UP, fewer, gone, gone, UP)] == [
        True,
        False,
        True,
        True,
        False,
        True,
    ]


def test_another_text_comes_at_most_every_30_s_and_only_when_it_has_changed():
    due = LineDue()
    moved = UP._replace(text="4 endpoints, 1201 requests")
    assert due.is_due(UP, 100.0)
    assert not due.is_due(moved, 100.0 + PLAIN_EVERY_S - 1)
    assert not due.is_due(UP, 100.0 + PLAIN_EVERY_S)
    assert due.is_due(moved, 100.0 + PLAIN_EVERY_S)
