"""Which priority and which model a snapshot of a pool's objects gives a request."""

import random
from collections import Counter

import pytest

from epp.objects.model import InferenceObjective, ModelRewrite, RewriteRule, RewriteTarget
from epp.objects.snapshot import NO_OBJECTS, ObjectHolder, PoolObjects, Rewrite


def rule(*targets: str | tuple[str, int | None], matches: tuple[str, ...] = ()) -> RewriteRule:
    pairs = [(target, None) if isinstance(target, str) else target for target in targets]
    return RewriteRule(tuple(RewriteTarget(*pair) for pair in pairs), matches)


def decide(model: str, *rewrites: ModelRewrite) -> Rewrite | None:
    return PoolObjects(rewrites=rewrites).rewrite(model, random.Random(1))


def shares(one: RewriteRule, draws: int = 20_000) -> dict[str, float]:
    objects, rng = PoolObjects(rewrites=[ModelRewrite("r", 0.0, (one,))]), random.Random(7)
    found = Counter(decision.target for _ in range(draws) if (decision := objects.rewrite("m", rng)))
    assert found.total() == draws
    return {target: count / draws for target, count in found.items()}


def test_objective_gives_its_priority_and_unknown_or_absent_ones_give_zero():
    objects = PoolObjects([InferenceObjective("gold", 10), InferenceObjective("batch", -5)])
    assert [objects.priority_of(name) for name in ("gold", "batch", "silver", "")] == [10, -5, 0, 0]


def test_of_two_objectives_with_one_name_the_last_counts():
    assert PoolObjects([InferenceObjective("a", 1), InferenceObjective("a", 2)]).priority_of("a") == 2


def test_without_objects_nothing_is_rewritten_and_every_priority_is_zero():
    assert NO_OBJECTS.rewrite("m", random.Random(1)) is None
    assert NO_OBJECTS.priority_of("gold") == 0
    assert ObjectHolder().current is NO_OBJECTS


def test_exact_rule_matches_its_names_and_no_others():
    rewrite = ModelRewrite("r", 1.0, (rule("t", matches=("a", "b")),))
    assert decide("a", rewrite) == decide("b", rewrite) == Rewrite("r", "t")
    assert decide("A", rewrite) is None
    assert decide("", rewrite) is None


def test_generic_rule_matches_every_model_and_none():
    rewrite = ModelRewrite("r", 1.0, (rule("t"),))
    assert decide("anything", rewrite) == decide("", rewrite) == Rewrite("r", "t")


def test_exact_rule_of_a_newer_object_precedes_a_generic_rule_of_an_older_one():
    generic, exact = (
        ModelRewrite("g", 1.0, (rule("x"),)),
        ModelRewrite("e", 2.0, (rule("y", matches=("m",)),)),
    )
    assert decide("m", generic, exact) == Rewrite("e", "y")
    assert decide("n", generic, exact) == Rewrite("g", "x")


@pytest.mark.parametrize("matches", [(), ("m",)])
def test_oldest_object_decides_whatever_the_order_they_came_in(matches: tuple[str, ...]):
    old = ModelRewrite("z", 1.0, (rule("old", matches=matches),))
    new = ModelRewrite("a", 2.0, (rule("new", matches=matches),))
    assert decide("m", new, old) == decide("m", old, new) == Rewrite("z", "old")


def test_objects_of_one_age_are_ordered_by_name():
    one = ModelRewrite("b", 1.0, (rule("of-b", matches=("m",)),))
    other = ModelRewrite("a", 1.0, (rule("of-a", matches=("m",)),))
    assert decide("m", one, other) == Rewrite("a", "of-a")


def test_first_matching_rule_of_an_object_decides():
    rewrite = ModelRewrite("r", 1.0, (rule("first", matches=("m",)), rule("second", matches=("m", "n"))))
    assert decide("m", rewrite) == Rewrite("r", "first")
    assert decide("n", rewrite) == Rewrite("r", "second")


def test_targets_with_weights_are_chosen_in_proportion():
    found = shares(rule(("a", 80), ("b", 20)))
    assert found["a"] == pytest.approx(0.8, abs=0.02)
    assert found["b"] == pytest.approx(0.2, abs=0.02)


def test_targets_without_weights_are_chosen_alike():
    found = shares(rule("a", "b", "c", "d"))
    assert found == {name: pytest.approx(0.25, abs=0.02) for name in "abcd"}


def test_targets_without_a_weight_beside_weighted_ones_are_never_chosen():
    assert shares(rule(("a", None), ("b", 3), ("c", None)), draws=500) == {"b": 1.0}


def test_only_target_is_chosen_without_drawing_a_random_number():
    rng = random.Random(3)
    before = rng.getstate()
    assert PoolObjects(rewrites=[ModelRewrite("r", 0.0, (rule("t"),))]).rewrite("m", rng) == ("r", "t")
    assert rng.getstate() == before


def test_snapshot_lists_every_target_of_every_rule():
    rules = (rule("a", "b", matches=("m",)), rule("c"))
    assert PoolObjects(rewrites=[ModelRewrite("r", 0.0, rules)]).targets == {"a", "b", "c"}
