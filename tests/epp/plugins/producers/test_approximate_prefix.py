"""approx-prefix-cache-producer: what was sent where is credited, and corrected by what engines say."""

from typing import Any

import pytest

from dataplane.config.problems import ConfigErrors
from dataplane.payload.token_usage import Usage
from epp.interfaces.attributes import PREFIX_MATCH, TOKENIZED_PROMPT, PrefixMatch, TokenizedPrompt
from epp.interfaces.endpoint import EndpointTable
from epp.interfaces.request import InferenceRequest, ResponseSummary
from epp.kvcache.approximate_index import MAX_INDEXED_KEYS
from epp.plugins.approximate_prefix import MAX_BATCH_PROMPTS
from epp.plugins.producers.approximate_prefix import ApproximatePrefixProducer
from tests.support.clock import ManualClock
from tests.support.pool import add_endpoint, chosen, make_plugin, make_request, make_table, prefilled

BLOCK = 64
"""Four engine blocks of 16 tokens."""
NATURAL = ResponseSummary(status=200, ttft_s=0.1)


def prompt(*blocks: str, tail: int = 4) -> bytes:
    """A prompt of whole blocks, each named by a letter, and some tokens more."""
    return "".join(letter * BLOCK * 4 for letter in blocks).encode() + b"~" * tail * 4


class Pool:
    """A producer over a table, driven as the director drives it."""

    def __init__(self, endpoints: int = 2, **parameters: Any) -> None:
        self.table: EndpointTable = make_table(endpoints)
        self.clock = ManualClock()
        self.producer: ApproximatePrefixProducer = make_plugin(
            ApproximatePrefixProducer, self.table, parameters, clock=self.clock
        )

    def ask(self, data: bytes, *, batch: list[bytes] | None = None, **fields: Any) -> InferenceRequest:
        """A request whose matches have been published."""
        request = make_request(**fields)
        tokens = sum(map(len, batch)) // 4 if batch is not None else len(data) // 4
        request.put(TOKENIZED_PROMPT, TokenizedPrompt(data, tokens, batch))
        self.producer.produce(request, self.table.all())
        return request

    def match(self, data: bytes, **fields: Any) -> list[float]:
        """Blocks of the prompt each endpoint holds."""
        return found(self.ask(data, **fields)).matched.tolist()

    def send(self, data: bytes, to: int = 0, **fields: Any) -> InferenceRequest:
        """A request decided for one endpoint."""
        request = self.ask(data, **fields)
        self.producer.pre_request(request, chosen(self.table.all(), to), {})
        return request

    def serve(self, data: bytes, to: int = 0, cached: int | None = None, **fields: Any) -> None:
        """A request that was answered, with the engine's report of cached tokens."""
        request = self.send(data, to, **fields)
        self.producer.on_first_byte(request)
        usage = Usage(prompt_tokens=len(data) // 4, cached_tokens=cached)
        self.producer.on_response_end(request, ResponseSummary(status=200, ttft_s=0.1, usage=usage))


def found(request: InferenceRequest) -> PrefixMatch:
    """The published match."""
    match = request.get(PREFIX_MATCH)
    assert match is not None
    return match


def test_a_prompt_is_credited_where_it_was_sent():
    pool = Pool()
    assert pool.match(prompt("a", "b")) == [0.0, 0.0]
    pool.send(prompt("a", "b"), to=1)
    assert pool.match(prompt("a", "b", "c")) == [0.0, 2.0]
    assert pool.match(prompt("a", "x")) == [0.0, 1.0]
    assert pool.match(prompt("x", "b")) == [0.0, 0.0]
    assert pool.producer.indexed_blocks == 2


def test_a_partial_last_block_counts_in_the_total_only():
    pool = Pool()
    pool.send(prompt("a", "b", tail=3))
    match = found(pool.ask(prompt("a", "b", tail=3)))
    assert (match.matched.tolist(), match.total, match.block_size) == ([2.0, 0.0], 3, BLOCK)


def test_the_last_token_is_always_computed():
    pool = Pool()
    pool.send(prompt("a", "b", tail=0))
    match = found(pool.ask(prompt("a", "b", tail=0)))
    assert (match.matched.tolist(), match.total) == ([1.0, 0.0], 2)
    assert pool.match(prompt("a", "b", "c", tail=0)) == [2.0, 0.0]


def test_deep_matches_are_in_blocks_and_stop_at_the_end_of_a_piece():
    pool = Pool()
    pool.send(prompt(*"a" * 100))
    match = found(pool.ask(prompt(*"a" * 100)))
    assert (match.matched.tolist(), match.total, match.block_size) == ([96.0, 0.0], 101, BLOCK)
    assert pool.match(prompt(*"a" * 30, *"b" * 70)) == [28.0, 0.0]
    assert pool.match(prompt(*"a" * 96, tail=0)) == [95.0, 0.0], "the last token is always computed"
    assert pool.producer.indexed_blocks == 96


def test_a_short_prompt_has_one_block_and_no_match():
    pool = Pool()
    pool.send(b"abcd")
    match = found(pool.ask(b"abcd"))
    assert (match.matched.tolist(), match.total) == ([0.0, 0.0], 1)


def test_without_tokens_nothing_is_published_or_recorded():
    pool = Pool()
    request = make_request()
    pool.producer.produce(request, pool.table.all())
    pool.producer.pre_request(request, chosen(pool.table.all(), 0), {})
    pool.producer.on_first_byte(request)
    pool.producer.on_response_end(request, NATURAL)
    assert request.get(PREFIX_MATCH) is None
    assert pool.producer.indexed_blocks == 0


def test_models_and_salts_are_kept_apart():
    pool = Pool()
    pool.send(prompt("a"), model="m")
    assert pool.match(prompt("a"), model="other") == [0.0, 0.0]
    assert pool.match(prompt("a"), model="m", cache_salt="s") == [0.0, 0.0]
    assert pool.match(prompt("a"), model="m") == [1.0, 0.0]


def test_a_batch_is_matched_prompt_by_prompt():
    pool = Pool()
    pool.send(prompt("a", "b"))
    pool.send(b"", to=0, batch=[prompt("c"), prompt("d", "e")])
    match = found(pool.ask(b"", batch=[prompt("a"), prompt("d", "e"), prompt("x"), prompt("c", "y")]))
    assert (match.matched.tolist(), match.total) == ([4.0, 0.0], 10)


def test_the_rest_of_a_huge_batch_counts_as_unmatched():
    pool = Pool()
    pool.send(prompt("a"))
    match = found(pool.ask(b"", batch=[prompt("a")] * (MAX_BATCH_PROMPTS + 5)))
    assert (match.matched.tolist(), match.total) == ([MAX_BATCH_PROMPTS, 0.0], 2 * (MAX_BATCH_PROMPTS + 5))


def test_only_so_much_of_a_prompt_is_looked_at():
    pool = Pool(maxPrefixTokensToMatch=160)
    pool.send(prompt("a", "b", "c"))
    match = found(pool.ask(prompt("a", "b", "c")))
    assert (match.matched.tolist(), match.total) == ([2.0, 0.0], 2)
    pool = Pool(maxPrefixTokensToMatch=0, maxPrefixBlocksToMatch=1)
    pool.send(prompt("a", "b"))
    assert pool.match(prompt("a", "b")) == [1.0, 0.0]
    pool = Pool(maxPrefixTokensToMatch=0, maxPrefixBlocksToMatch=0)
    pool.send(prompt("a", "b"))
    assert pool.match(prompt("a", "b")) == [2.0, 0.0]


@pytest.mark.parametrize(
    ("engine_block", "index_block"), [(1, 64), (16, 64), (24, 72), (32, 64), (64, 64), (128, 128), (544, 544)]
)
def test_a_block_is_as_many_engine_blocks_as_span_the_grain(engine_block: int, index_block: int):
    pool = Pool()
    pool.table.block_size[:2] = engine_block
    pool.clock.advance(1.0)
    assert found(pool.ask(prompt("a"))).block_size == index_block


def test_the_smallest_block_and_each_capacity_follow_the_engines():
    pool = Pool()
    pool.send(prompt("a"))
    assert pool.producer.block_tokens == 64
    pool.table.block_size[:2] = [256, 128]
    pool.table.num_blocks[:2] = [3, 3]
    pool.clock.advance(1.0)
    assert found(pool.ask(prompt("a", "b"))).block_size == 128
    assert pool.producer.indexed_blocks == 0, "blocks of another size would never match"
    letters = [chr(ord("a") + i) for i in range(20)]
    pool.send(prompt(*letters), to=0)
    pool.send(prompt(*letters), to=1)
    assert pool.match(prompt(*letters)) == [6.0, 3.0], "capacity in tokens is the engine's"


def test_an_endpoint_remembers_no_more_deep_blocks_than_its_engine_holds():
    pool = Pool()
    pool.table.block_size[:2] = 16
    pool.table.num_blocks[:2] = 4 * 200
    pool.clock.advance(1.0)
    for letter in "abcd":
        pool.send(prompt(*letter * 112))
    assert [pool.match(prompt(*letter * 112))[0] for letter in "abcd"] == [0.0, 0.0, 80.0, 112.0]
    pool.send(prompt(*"e" * 250))
    assert pool.match(prompt(*"e" * 250)) == [192.0, 0.0]
    assert pool.producer.indexed_blocks == 200


def test_without_auto_tune_the_parameters_count():
    pool = Pool(autoTune=False, blockSizeTokens=8, lruCapacityPerServer=3)
    pool.table.block_size[:2] = 64
    pool.table.num_blocks[:2] = 1000
    pool.clock.advance(1.0)
    pool.send(prompt("a", "b"))
    match = found(pool.ask(prompt("a", "b")))
    assert (match.block_size, match.matched.tolist(), match.total) == (8, [3.0, 0.0], 17)
    pool = Pool(autoTune=False, blockSizeTokens=8)
    pool.send(prompt("a", "b", "c"))
    assert pool.match(prompt("a", "b", "c")) == [24.0, 0.0]
    assert pool.match(prompt("a", "b", "x")) == [16.0, 0.0]


def test_the_deprecated_block_size_is_in_characters():
    pool = Pool(autoTune=False, blockSize=32)
    assert pool.producer.block_tokens == 8
    assert pool.producer.warnings == ["blockSize is deprecated; use blockSizeTokens"]


def test_a_returning_endpoint_starts_empty():
    pool = Pool()
    pool.send(prompt("a", "b"))
    pool.table.remove("default/e0")
    add_endpoint(pool.table, "e0")
    assert pool.match(prompt("a", "b")) == [0.0, 0.0]
    assert pool.producer.indexed_blocks == 0


@pytest.mark.parametrize(
    "summary",
    [
        ResponseSummary(status=500, ttft_s=0.1),
        ResponseSummary(status=429),
        ResponseSummary(cause="client-disconnect"),
        ResponseSummary(status=200, cause="error"),
    ],
    ids=["failed", "refused", "aborted early", "broken off early"],
)
def test_a_prompt_that_was_never_computed_is_taken_back(summary: ResponseSummary):
    pool = Pool()
    pool.serve(prompt("a"))
    request = pool.send(prompt("a", "b", "c"))
    pool.producer.on_response_end(request, summary)
    assert pool.match(prompt("a", "b", "c")) == [1.0, 0.0]


@pytest.mark.parametrize(
    "summary",
    [NATURAL, ResponseSummary(), ResponseSummary(status=200, ttft_s=0.1, cause="client-disconnect")],
    ids=["answered", "response not shown", "aborted while answering"],
)
def test_a_prompt_that_was_computed_stays(summary: ResponseSummary):
    pool = Pool()
    request = pool.send(prompt("a", "b"))
    pool.producer.on_response_end(request, summary)
    pool.producer.on_response_end(request, ResponseSummary(status=500))
    assert pool.match(prompt("a", "b")) == [2.0, 0.0]


def test_a_prompt_served_elsewhere_is_credited_there():
    pool = Pool()
    request = pool.send(prompt("a", "b"), to=0)
    served = pool.table.all().endpoint(1).key
    pool.producer.on_response_end(request, ResponseSummary(status=200, ttft_s=0.1, served=served))
    assert pool.match(prompt("a", "b")) == [0.0, 2.0]


def test_a_prompt_served_by_a_stranger_is_credited_to_nobody():
    pool = Pool()
    request = pool.send(prompt("a", "b"), to=0)
    summary = ResponseSummary(status=200, ttft_s=0.1, served="10.9.9.9:1")
    pool.producer.on_response_end(request, summary)
    assert pool.match(prompt("a", "b")) == [0.0, 0.0]


LONG = [chr(ord("a") + i) for i in range(12)]


def test_a_missing_prefix_shows_what_the_engine_has_evicted():
    pool = Pool()
    pool.serve(prompt("O"))
    pool.serve(prompt(*LONG), cached=0)
    pool.serve(prompt("N"))
    pool.serve(prompt(*LONG, "Z"), cached=2 * BLOCK)
    assert pool.match(prompt("O")) == [0.0, 0.0], "staler than what was missing"
    assert pool.match(prompt("N")) == [1.0, 0.0], "touched after it"
    assert pool.match(prompt(*LONG, "Z")) == [13.0, 0.0], "just computed"


def test_a_report_close_to_the_belief_changes_nothing():
    pool = Pool()
    pool.serve(prompt("O"))
    pool.serve(prompt(*LONG), cached=0)
    pool.serve(prompt(*LONG), cached=9 * BLOCK)
    assert pool.match(prompt("O")) == [1.0, 0.0]


def test_belief_in_a_prompt_under_way_is_no_evidence():
    pool = Pool()
    pool.serve(prompt("O"))
    pool.send(prompt(*LONG))
    pool.serve(prompt(*LONG), cached=0)
    assert pool.match(prompt("O")) == [1.0, 0.0]


def test_reports_without_numbers_change_nothing():
    pool = Pool()
    pool.serve(prompt("O"))
    pool.serve(prompt(*LONG))
    for usage in (Usage(), Usage(cached_tokens=0), Usage(prompt_tokens=0, cached_tokens=0)):
        request = pool.send(prompt(*LONG))
        pool.producer.on_response_end(request, ResponseSummary(status=200, ttft_s=0.1, usage=usage))
    assert pool.match(prompt("O")) == [1.0, 0.0]


def test_an_endpoint_that_never_reports_a_hit_is_emptied():
    pool = Pool()
    pool.serve(prompt("K"), to=1)
    for _ in range(4):
        pool.serve(prompt(*LONG), cached=0)
    assert pool.match(prompt(*LONG)) == [12.0, 0.0]
    pool.serve(prompt(*LONG), cached=0)
    assert pool.match(prompt(*LONG)) == [0.0, 0.0]
    assert pool.match(prompt("K")) == [0.0, 1.0]


def test_one_reported_hit_restores_the_trust():
    pool = Pool()
    for cached in (0, 0, 0, 0, BLOCK, 0, 0, 0):
        pool.serve(prompt(*LONG), cached=cached)
    assert pool.match(prompt(*LONG)) == [12.0, 0.0]


def test_requests_from_before_a_change_of_block_size_settle_harmlessly():
    pool = Pool()
    request = pool.send(prompt(*LONG))
    pool.table.block_size[:2] = 128
    pool.clock.advance(1.0)
    pool.send(prompt(*LONG))
    usage = Usage(prompt_tokens=100, cached_tokens=0)
    pool.producer.on_first_byte(request)
    pool.producer.on_response_end(request, ResponseSummary(status=500, usage=usage))
    assert pool.match(prompt(*LONG)) == [6.0, 0.0]


def test_a_named_producer_publishes_under_its_name():
    producer = make_plugin(ApproximatePrefixProducer, name="mine")
    assert list(producer.produces) == [PREFIX_MATCH.by("mine")]
    assert list(make_plugin(ApproximatePrefixProducer).produces) == [PREFIX_MATCH]


@pytest.mark.parametrize(
    "parameters",
    [
        {"blockSizeTokens": 0},
        {"lruCapacityPerServer": 0},
        {"maxPrefixTokensToMatch": -1},
        {"autoTune": "yes"},
    ],
)
def test_impossible_parameters_are_refused(parameters: dict[str, Any]):
    with pytest.raises(ConfigErrors):
        make_plugin(ApproximatePrefixProducer, None, parameters)


def test_a_prompt_is_credited_to_the_prefill_endpoint_too():
    pool = Pool(3)
    request = pool.ask(prompt("a", "b"))
    pool.producer.pre_request(request, prefilled(pool.table.all(), 0, 2), {})
    assert pool.match(prompt("a", "b")) == [2.0, 0.0, 2.0]
    pool.producer.on_first_byte(request)
    pool.producer.on_response_end(request, NATURAL)
    assert pool.match(prompt("a", "b")) == [2.0, 0.0, 2.0]


def test_a_failed_request_is_taken_back_from_both_endpoints():
    pool = Pool(3)
    request = pool.ask(prompt("a", "b"))
    pool.producer.pre_request(request, prefilled(pool.table.all(), 0, 2), {})
    pool.producer.on_response_end(request, ResponseSummary(status=500))
    assert pool.match(prompt("a", "b")) == [0.0, 0.0, 0.0]


def test_its_state_is_the_index_in_figures():
    pool = Pool(3, autoTune=False, blockSizeTokens=BLOCK)
    pool.serve(prompt("a", "b"), to=1)
    pool.send(prompt("a"), to=0)
    shown = pool.producer.dump_state()
    assert (shown["blockSizeTokens"], shown["blocks"], shown["distinctKeys"], shown["keys"]) == (
        BLOCK,
        3,
        2,
        3,
    )
    assert (shown["totalEndpoints"], shown["leftOut"], shown["maxKeys"]) == (2, 0, MAX_INDEXED_KEYS)
    assert [(row["endpoint"], row["blocks"], row["unconfirmedPrompts"]) for row in shown["endpoints"]] == [
        ("default/e1", 2, 0),
        ("default/e0", 1, 1),
    ]
    pool.table.remove("default/e1")
    assert [row["endpoint"] for row in pool.producer.dump_state()["endpoints"]] == ["default/e0"]


@pytest.mark.parametrize(
    ("tokens", "effect"), [(0, ""), (4096, " and has no effect while maxPrefixTokensToMatch is not 0")]
)
def test_a_limit_in_blocks_is_deprecated(tokens: int, effect: str):
    pool = Pool(maxPrefixBlocksToMatch=8, maxPrefixTokensToMatch=tokens)
    assert pool.producer.warnings == [
        f"maxPrefixBlocksToMatch is deprecated{effect}; use maxPrefixTokensToMatch"
    ]
