"""Scheduling in virtual time: batching, chunks, cache hits, preemption, aborts, both kinds of latency."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.engine import MAX_LAG, QueueFullError
from simulator.latency import Jittered, SequenceLatency, StepLatency
from simulator.metrics import Metrics
from simulator.sequence import Sequence
from simulator.text import NoAnswer
from simulator.tokenizer import from_ids
from tests.simulator.driving import Trace, check_blocks, drive, limits, new_engine, samples, sequence, trace


def test_one_token_per_step_after_the_prompt():
    engine = new_engine()
    one = sequence(range(10), 3)
    engine.submit([one], 0.0)
    drive(engine)
    assert trace(one).tokens == [1.0, 2.0, 3.0]
    assert trace(one).done
    assert (engine.running, list(engine.waiting), engine.cache.used) == ([], [], 0)


def test_idle_engine_has_nothing_due():
    assert new_engine().advance(5.0) is None


def test_step_time_counts_prefill_decodes_and_context():
    engine = new_engine(StepLatency(base=1.0, prefill_token=0.1, decode_sequence=0.01, context_token=0.0001))
    one = sequence(range(100), 3)
    engine.submit([one], 0.0)
    assert engine.advance(0.0) == pytest.approx(1.0 + 0.1 * 100)
    assert engine.advance(11.0) == pytest.approx(11.0 + 1.0 + 0.01 + 0.0001 * 100)
    assert engine.advance(12.02) == pytest.approx(12.02 + 1.0 + 0.01 + 0.0001 * 101)


def test_long_prompt_is_computed_in_chunks_of_the_budget():
    engine = new_engine(max_num_batched_tokens=32)
    one = sequence(range(100), 1)
    engine.submit([one], 0.0)
    seen = []
    now = 0.0
    while (due := engine.advance(now)) is not None:
        seen.append(one.computed)
        now = due
    assert seen == [0, 32, 64, 96]
    assert trace(one).tokens == [4.0]


def test_decodes_come_before_prefill_within_the_budget():
    engine = new_engine(max_num_batched_tokens=32)
    early, late = sequence(range(16), 10), sequence(range(1000, 1100), 1)
    engine.submit([early], 0.0)
    assert engine.advance(0.0) == 1.0
    engine.submit([late], 0.5)
    engine.advance(1.0)
    assert (early.computed, late.computed) == (16, 0)
    engine.advance(2.0)
    assert (early.computed, late.computed) == (17, 31)


def test_seats_limit_the_batch_and_the_queue_is_first_come_first_served():
    engine = new_engine(max_num_seqs=2)
    group = [sequence(range(n * 100, n * 100 + 10), 2) for n in range(4)]
    engine.submit(group, 0.0)
    engine.advance(0.0)
    assert (engine.running, list(engine.waiting)) == (group[:2], group[2:])
    drive(engine)
    assert [trace(one).tokens for one in group] == [[1.0, 2.0], [1.0, 2.0], [3.0, 4.0], [3.0, 4.0]]


def test_full_queue_refuses_all_sequences_of_a_request():
    engine = new_engine(max_num_seqs=2, max_waiting=3)
    engine.submit([sequence([1], 1) for _ in range(4)], 0.0)
    with pytest.raises(QueueFullError):
        engine.submit([sequence([1], 1), sequence([1], 1)], 0.0)
    assert len(engine.waiting) == 4
    engine.submit([sequence([1], 1)], 0.0)
    with pytest.raises(QueueFullError):
        engine.submit([sequence([1], 1)], 0.0)


@pytest.mark.parametrize(
    ("prompt", "cached"),
    [(15, 0), (16, 0), (17, 16), (32, 16), (33, 32), (100, 96)],
    ids=lambda value: str(value),
)
def test_repeated_prompt_hits_its_full_blocks_but_never_its_last_token(prompt: int, cached: int):
    engine = new_engine()
    for expected in (0, cached):
        one = sequence(range(prompt), 1)
        engine.submit([one], 0.0)
        drive(engine)
        assert one.cached_tokens == expected


def test_cache_hit_shortens_the_time_to_first_token():
    engine = new_engine(StepLatency(0.0, 0.01, 0.0, 0.0))
    first, again = sequence(range(100), 1), sequence(range(100), 1)
    engine.submit([first], 0.0)
    now = drive(engine)
    engine.submit([again], now)
    drive(engine, now)
    assert trace(first).tokens == [pytest.approx(1.0)]
    assert trace(again).tokens == [pytest.approx(now + 0.04)]


def test_prefix_shared_by_different_prompts_hits_up_to_where_they_differ():
    engine = new_engine()
    engine.submit([sequence(range(64), 1)], 0.0)
    drive(engine)
    other = sequence([*range(40), *range(500, 560)], 1)
    engine.submit([other], 0.0)
    drive(engine)
    assert other.cached_tokens == 32


def test_equal_prompts_in_one_step_share_blocks():
    engine = new_engine()
    twins = [sequence(range(40), 2), sequence(range(40), 2)]
    engine.submit(twins, 0.0)
    engine.advance(0.0)
    assert [twin.cached_tokens for twin in twins] == [0, 32]
    assert engine.cache.used == 4
    check_blocks(engine)


def test_generated_tokens_are_found_by_the_next_turn():
    engine = new_engine()
    first = sequence(range(20), 30)
    engine.submit([first], 0.0)
    drive(engine)
    history = first.prompt + first.answer.tokens(0, 30)
    again = Sequence(history + from_ids(range(900, 910)), NoAnswer(), Trace())
    engine.submit([again], 0.0)
    drive(engine)
    # 20 + 30 tokens, of which the last generated one was never computed: 49 computed, 3 full blocks.
    assert again.cached_tokens == 48


def test_different_roots_share_nothing():
    engine = new_engine()
    one = sequence(range(40), 1)
    engine.submit([one], 0.0)
    drive(engine)
    salted = Sequence(one.prompt, one.answer, Trace(), root=1)
    engine.submit([salted], 0.0)
    drive(engine)
    assert salted.cached_tokens == 0


def test_without_prefix_caching_nothing_hits():
    engine = new_engine(prefix_caching=False)
    for _ in range(2):
        one = sequence(range(40), 1)
        engine.submit([one], 0.0)
        drive(engine)
        assert one.cached_tokens == 0


def test_waits_for_blocks_instead_of_failing():
    engine = new_engine(num_blocks=4)
    first, second = sequence(range(48), 2), sequence(range(100, 148), 2)
    engine.submit([first, second], 0.0)
    engine.advance(0.0)
    assert (engine.running, list(engine.waiting)) == ([first], [second])
    drive(engine)
    assert trace(second).tokens == [3.0, 4.0]


def test_hits_that_would_leave_no_room_for_the_rest_wait():
    engine = new_engine(num_blocks=6)
    cached = sequence(range(48), 1)
    engine.submit([cached], 0.0)
    drive(engine)
    holder, hitter = sequence(range(100, 140), 3), sequence(range(72), 1)
    engine.submit([holder, hitter], 10.0)
    engine.advance(10.0)
    assert (engine.running, list(engine.waiting)) == ([holder], [hitter])
    check_blocks(engine)
    drive(engine, 10.0)
    assert trace(hitter).done


def test_block_pressure_preempts_the_one_admitted_last_and_it_recomputes():
    metrics = Metrics("m", limits(), with_adapters=False)
    engine = new_engine(metrics=metrics, num_blocks=4)
    first, second = sequence(range(30), 20), sequence(range(100, 130), 20)
    engine.submit([first, second], 0.0)
    drive(engine, until=lambda: bool(engine.waiting))
    assert (engine.running, list(engine.waiting)) == ([first], [second])
    assert (second.blocks, second.computed, second.generated) == ([], 0, 3)
    drive(engine, 4.0)
    assert trace(first).tokens == [float(n) for n in range(1, 21)]
    assert len(trace(second).tokens) == 20
    assert samples(metrics.render(engine))["vllm:num_preemptions_total"] == 1
    check_blocks(engine)


def test_preempted_sequence_finds_what_is_still_cached():
    engine = new_engine(num_blocks=5)
    first, second = sequence(range(30), 30), sequence(range(100, 130), 30)
    engine.submit([first, second], 0.0)
    now = drive(engine, until=lambda: bool(engine.waiting))
    drive(engine, now, until=lambda: second in engine.running)
    assert second.registered >= 1
    assert second.cached_tokens == 0
    drive(engine, now)
    assert len(trace(second).tokens) == 30


def test_abort_frees_blocks_at_once_while_the_step_goes_on():
    engine = new_engine()
    gone, stays = sequence(range(40), 50), sequence(range(100, 140), 2)
    engine.submit([gone, stays], 0.0)
    engine.advance(0.0)
    assert engine.cache.used == 6
    engine.abort([gone], 0.5)
    assert (engine.cache.used, engine.running) == (3, [stays])
    drive(engine, 1.0)
    assert (trace(gone).tokens, trace(stays).tokens) == ([], [1.0, 2.0])
    assert engine.cache.used == 0


def test_abort_of_a_waiting_and_of_a_finished_sequence_is_harmless():
    engine = new_engine(max_num_seqs=1)
    runs, waits = sequence(range(10), 1), sequence(range(10), 1)
    engine.submit([runs, waits], 0.0)
    engine.advance(0.0)
    engine.abort([waits], 0.0)
    drive(engine)
    engine.abort([runs, waits], 9.0)
    assert (trace(runs).done, trace(waits).done, engine.cache.used) == (True, False, 0)


def test_request_without_answer_ends_with_its_prompt():
    engine = new_engine(max_num_batched_tokens=32)
    listener = Trace()
    engine.submit([Sequence(from_ids(range(64)), NoAnswer(), listener)], 0.0)
    assert drive(engine) == 2.0
    assert listener.done


def test_adapters_beyond_the_limit_wait_and_let_others_pass():
    engine = new_engine(max_loras=1)
    a, b, plain, a2 = (
        sequence(range(n, n + 5), 2, adapter=adapter)
        for n, adapter in ((0, "a"), (50, "b"), (100, ""), (150, "a"))
    )
    engine.submit([a, b, plain, a2], 0.0)
    engine.advance(0.0)
    assert (engine.running, list(engine.waiting)) == ([a, plain, a2], [b])
    drive(engine)
    assert trace(b).tokens == [3.0, 4.0]


def test_late_caller_keeps_the_timeline():
    engine = new_engine()
    one = sequence(range(10), 3)
    engine.submit([one], 0.0)
    engine.advance(0.0)
    assert engine.advance(1.0 + MAX_LAG / 2) == 2.0


def test_caller_that_is_far_too_late_loses_the_time():
    engine = new_engine()
    one = sequence(range(10), 3)
    engine.submit([one], 0.0)
    engine.advance(0.0)
    assert engine.advance(5.0) == 6.0


def test_constant_calculator_gives_each_sequence_its_own_pace():
    latency = SequenceLatency(
        random.Random(0), max_num_seqs=8, time_to_first_token=Jittered(1.0), inter_token=Jittered(0.25)
    )
    engine = new_engine(latency)
    first, second = sequence(range(50), 3), sequence(range(100, 150), 3)
    engine.submit([first], 0.0)
    assert engine.advance(0.0) == 1.0
    engine.submit([second], 0.5)
    drive(engine, 0.5)
    assert trace(first).tokens == [1.0, 1.25, 1.5]
    assert trace(second).tokens == [1.5, 1.75, 2.0]


def test_per_token_calculator_charges_for_uncached_tokens_only():
    latency = SequenceLatency(random.Random(0), max_num_seqs=8, prefill_overhead=1.0, prefill_per_token=0.125)
    engine = new_engine(latency)
    first, again = sequence(range(40), 1), sequence(range(40), 1)
    engine.submit([first], 0.0)
    now = drive(engine)
    engine.submit([again], now)
    drive(engine, now)
    assert trace(first).tokens == [1.0 + 40 * 0.125]
    assert trace(again).tokens == [now + 1.0 + 8 * 0.125]


def test_load_factor_reaches_its_full_value_with_every_seat_taken():
    latency = SequenceLatency(
        random.Random(0), max_num_seqs=3, load_factor=2.0, time_to_first_token=Jittered(1.0)
    )
    assert [latency.prefill(1, running) for running in (1, 2, 3)] == [1.0, 1.5, 2.0]


def test_switch_of_the_latency_lets_running_work_end_as_planned():
    engine = new_engine()
    one = sequence(range(10), 4)
    engine.submit([one], 0.0)
    engine.advance(0.0)
    engine.latency = SequenceLatency(random.Random(0), max_num_seqs=8, inter_token=Jittered(0.5))
    engine.advance(1.0)
    engine.advance(1.5)
    engine.latency = StepLatency(2.0, 0.0, 0.0, 0.0)
    drive(engine, 2.0)
    assert trace(one).tokens == [1.0, 1.5, 2.0, 4.0]


def test_answers_with_time_of_the_same_seed_are_the_same():
    def run() -> list[list[float]]:
        latency = SequenceLatency(
            random.Random("7"),
            max_num_seqs=8,
            time_to_first_token=Jittered(1.0, 0.3),
            inter_token=Jittered(0.1, 0.03),
        )
        engine = new_engine(latency)
        group = [sequence(range(n * 50, n * 50 + 20), 5) for n in range(6)]
        engine.submit(group, 0.0)
        drive(engine)
        return [trace(one).tokens for one in group]

    assert run() == run()


@settings(max_examples=60)
@given(
    jobs=st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 90), st.integers(0, 30), st.integers(0, 40)),
        min_size=1,
        max_size=12,
    ),
    per_sequence=st.booleans(),
    aborted=st.sets(st.integers(0, 11)),
)
def test_any_load_finishes_with_exact_lengths_and_no_block_lost(
    jobs: list[tuple[int, int, int, int]], per_sequence: bool, aborted: set[int]
):
    paced = SequenceLatency(
        random.Random(1), max_num_seqs=4, time_to_first_token=Jittered(2.0, 0.5), inter_token=Jittered(1.0)
    )
    engine = new_engine(
        paced if per_sequence else StepLatency(1.0, 0.01, 0.1, 0.001),
        num_blocks=9,
        max_num_seqs=4,
        max_num_batched_tokens=24,
        max_model_len=144,
    )
    pending = [
        (float(at), sequence(range(family * 1000, family * 1000 + prompt), output or 1))
        for family, prompt, output, at in jobs
    ]
    everything = [one for _, one in pending]
    pending.sort(key=lambda item: item[0])
    now = 0.0
    while pending or engine.running or engine.waiting:
        while pending and pending[0][0] <= now:
            engine.submit([pending.pop(0)[1]], now)
        due = engine.advance(now)
        check_blocks(engine)
        for index in aborted & set(range(len(everything))):
            if everything[index].generated == 2:
                engine.abort([everything[index]], now)
                check_blocks(engine)
        upcoming = [*([due] if due is not None else []), *(at for at, _ in pending[:1])]
        now = max(now, min(upcoming)) if upcoming else now
    assert engine.cache.used == 0
    for index, one in enumerate(everything):
        assert trace(one).done or index in aborted
        if trace(one).done:
            assert len(trace(one).tokens) == one.answer.length
            assert trace(one).tokens == sorted(trace(one).tokens)
