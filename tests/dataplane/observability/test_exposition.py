"""The text exposition, read back by the parser of prometheus_client."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from dataplane.observability.exposition import SLICE_SERIES, Description, MetricSet
from dataplane.observability.numbers import Histogram


def samples(metrics: MetricSet) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """What the parser reads: (sample name, sorted labels) -> value."""
    families = text_string_to_metric_families("".join(metrics.expose()))
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for f in families for s in f.samples}


def test_text_is_exactly_that_of_the_format():
    metrics = MetricSet()
    metrics.counter("a_total", "Things with a \\ and a\nnew line.", ("kind",)).child('q"\\\n').inc(3)
    metrics.gauge("b", "Plain.").child().set(0.25)
    histogram = metrics.histogram("c_seconds", "Times.", (0.005, 1, 2.5)).child()
    histogram.observe(1)
    histogram.observe(7)
    metrics.computed("d", "Asked.", ("n",), lambda: [(("x",), 1.0), (("y",), 2.5)])
    assert "".join(metrics.expose()) == (
        "# HELP a_total Things with a \\\\ and a\\nnew line.\n"
        "# TYPE a_total counter\n"
        'a_total{kind="q\\"\\\\\\n"} 3\n'
        "# HELP b Plain.\n"
        "# TYPE b gauge\n"
        "b 0.25\n"
        "# HELP c_seconds Times.\n"
        "# TYPE c_seconds histogram\n"
        'c_seconds_bucket{le="0.005"} 0\n'
        'c_seconds_bucket{le="1"} 1\n'
        'c_seconds_bucket{le="2.5"} 1\n'
        'c_seconds_bucket{le="+Inf"} 2\n'
        "c_seconds_sum 8\n"
        "c_seconds_count 2\n"
        "# HELP d Asked.\n"
        "# TYPE d gauge\n"
        'd{n="x"} 1\n'
        'd{n="y"} 2.5\n'
    )


def test_computed_metrics_may_be_of_any_kind():
    metrics = MetricSet()
    seen = Histogram((1, 2))
    seen.observe(2)
    metrics.computed("a_total", "Counted.", ("n",), lambda: [(("x",), 4)], kind="counter")
    metrics.computed("b", "Spread.", ("n",), lambda: [(("x",), seen)], kind="histogram")
    assert "".join(metrics.expose()) == (
        "# HELP a_total Counted.\n"
        "# TYPE a_total counter\n"
        'a_total{n="x"} 4\n'
        "# HELP b Spread.\n"
        "# TYPE b histogram\n"
        'b_bucket{n="x",le="1"} 0\n'
        'b_bucket{n="x",le="2"} 1\n'
        'b_bucket{n="x",le="+Inf"} 1\n'
        'b_sum{n="x"} 2\n'
        'b_count{n="x"} 1\n'
    )


@given(st.text(alphabet=st.characters(blacklist_categories=["Cs"])), st.floats())
def test_any_label_and_any_value_survive_the_way_through_the_parser(label: str, value: float):
    metrics = MetricSet()
    metrics.gauge("g", "help", ("l",)).child(label).set(value)
    ((key, read),) = samples(metrics).items()
    assert key == ("g", (("l", label),))
    assert read == value or (math.isnan(read) and math.isnan(value))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1.0, "1"),
        (999_999.0, "999999"),
        (1_000_000, "1e+06"),
        (1_048_576, "1.048576e+06"),
        (1 << 30, "1.073741824e+09"),
        (1234567.5, "1.2345675e+06"),
        (-5.0, "-5"),
        (-2_000_000.0, "-2000000.0"),
        (0.0001, "0.0001"),
        (1e-05, "1e-05"),
        (1e300, "1e+300"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (math.nan, "NaN"),
    ],
)
def test_numbers_are_written_as_go_writes_them(value: float, text: str):
    metrics = MetricSet()
    metrics.gauge("g", "help").child().set(value)
    assert "".join(metrics.expose()).splitlines()[-1] == f"g {text}"


def test_many_series_come_in_slices():
    metrics = MetricSet()
    family = metrics.counter("a_total", "help", ("n",))
    for i in range(2 * SLICE_SERIES + 1):
        family.child(str(i))
    assert [block.count("\n") for block in metrics.expose()] == [2, SLICE_SERIES, SLICE_SERIES, 1]


def test_series_added_between_two_slices_wait_for_the_next_exposition():
    metrics = MetricSet()
    family = metrics.counter("a_total", "help", ("n",))
    for i in range(SLICE_SERIES + 1):
        family.child(str(i))
    blocks = metrics.expose()
    seen = [next(blocks), next(blocks)]
    family.child("late")
    seen += blocks
    assert [block.count("\n") for block in seen] == [2, SLICE_SERIES, 1]


def test_describe_lists_every_metric_by_name():
    metrics = MetricSet()
    metrics.histogram("z_seconds", "help", (1,), ("a",))
    metrics.counter("b_total", "help")
    metrics.computed("m", "help", ("x", "y"), list)
    assert metrics.describe() == [
        Description("b_total", "counter", ()),
        Description("m", "gauge", ("x", "y")),
        Description("z_seconds", "histogram", ("a",), (1,)),
    ]


def test_a_twin_has_some_labels_and_adds_up_the_rest():
    metrics = MetricSet()
    counter = metrics.counter("new_total", "help", ("model", "tenant"))
    seconds = metrics.histogram("new_seconds", "help", (1, 2), ("model", "tenant"))
    for tenant, amount in (("x", 1), ("y", 3)):
        counter.child("m", tenant).inc(amount)
        seconds.child("m", tenant).observe(amount)
    metrics.computed("new", "help", ("model",), lambda: [(("m",), 5), (("n",), 7)])
    metrics.twin("old_total", "new_total", {"model_name": "model"})
    metrics.twin("old_seconds", "new_seconds", {})
    metrics.twin("old", "new", {"model_name": "model"})
    assert [
        line for line in "".join(metrics.expose()).splitlines() if "old" in line and "HELP" not in line
    ] == [
        "# TYPE old_total counter",
        'old_total{model_name="m"} 4',
        "# TYPE old_seconds histogram",
        'old_seconds_bucket{le="1"} 1',
        'old_seconds_bucket{le="2"} 1',
        'old_seconds_bucket{le="+Inf"} 2',
        "old_seconds_sum 4",
        "old_seconds_count 2",
        "# TYPE old gauge",
        'old{model_name="m"} 5',
        'old{model_name="n"} 7',
    ]
    with pytest.raises(ValueError, match="old is a twin itself"):
        metrics.twin("older", "old", {})


def test_help_begins_with_the_mark_of_its_prefix():
    metrics = MetricSet(help_marks={"field_": "[ALPHA] "})
    metrics.gauge("field_a", "text")
    metrics.gauge("own_a", "text")
    assert [line for line in "".join(metrics.expose()).splitlines() if "HELP" in line] == [
        "# HELP field_a [ALPHA] text",
        "# HELP own_a text",
    ]


def test_a_name_is_declared_once():
    metrics = MetricSet()
    metrics.gauge("g", "help")
    with pytest.raises(ValueError, match="metric g is declared twice"):
        metrics.counter("g", "help")
