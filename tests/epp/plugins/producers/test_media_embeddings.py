"""mm-embeddings-cache-producer: which endpoint has probably encoded which media before."""

from typing import Any

import pytest

from epp.interfaces.attributes import ENCODER_MATCH, EncoderMatch
from epp.interfaces.endpoint import EndpointTable
from epp.interfaces.request import InferenceRequest, MediaKind, Medium, ResponseSummary
from epp.interfaces.scheduling import SchedulingResult
from epp.plugins.producers import media_embeddings
from epp.plugins.producers.media_embeddings import HIT_RATIO, HITS, QUERIES, MediaEmbeddingsProducer
from tests.support.pool import add_endpoint, chosen, make_plugin, make_request, make_table, prefilled


def image(number: int, tokens: int = 100) -> Medium:
    return Medium(MediaKind.IMAGE, f"{number:016x}", width=1024, height=tokens)


class Rig:
    """A producer over a few endpoints."""

    def __init__(self, count: int = 3, **parameters: int) -> None:
        self.table = make_table(count)
        self.plugin = make_plugin(MediaEmbeddingsProducer, self.table, parameters)

    def asked(self, *media: Medium) -> InferenceRequest:
        """A request with these media, looked up."""
        request = make_request(prompt_text=b"x", media=list(media) or None)
        self.plugin.produce(request, self.table.all())
        return request

    def matches(self, *media: Medium) -> list[float]:
        """Tokens of these media that each endpoint holds."""
        match = self.asked(*media).get(ENCODER_MATCH)
        assert match is not None
        return match.matched.tolist()

    def send(self, position: int, *media: Medium, result: SchedulingResult | None = None) -> InferenceRequest:
        """A request with these media is sent to the endpoint at this position."""
        request = self.asked(*media)
        self.plugin.pre_request(request, result or chosen(self.table.all(), position), {})
        return request

    def series(self, metric: str) -> dict[tuple[str, ...], Any]:
        return {tuple(labels): value for labels, value in self.plugin.metric_series(metric)}


def test_what_was_sent_somewhere_is_held_there():
    rig = Rig()
    assert rig.matches(image(1)) == [0.0, 0.0, 0.0]
    rig.send(1, image(1), image(2, 50))
    rig.send(2, image(1))
    assert rig.matches(image(1)) == [0.0, 100.0, 100.0]
    assert rig.matches(image(1), image(2, 50), image(3)) == [0.0, 150.0, 100.0]
    match = rig.asked(image(1), image(2, 50)).get(ENCODER_MATCH)
    assert isinstance(match, EncoderMatch)
    assert match.total == 150.0


def test_a_medium_counts_once_however_often_it_occurs():
    rig = Rig()
    rig.send(0, image(1), image(1))
    match = rig.asked(image(1), image(1)).get(ENCODER_MATCH)
    assert match is not None
    assert (match.matched.tolist(), match.total) == ([100.0, 0.0, 0.0], 100.0)


def test_text_and_files_are_not_looked_up():
    rig = Rig()
    for media in ([], [Medium(MediaKind.FILE, "0" * 16)]):
        assert rig.asked(*media).get(ENCODER_MATCH) is None
    rig.send(0)
    assert rig.plugin.index.by_slot == {}


def test_whoever_encodes_holds_the_media():
    rig = Rig()
    candidates = rig.table.all()
    rig.send(0, image(1), result=prefilled(candidates, 0, 2))
    assert rig.matches(image(1)) == [0.0, 0.0, 100.0]
    encoded = prefilled(candidates, 0, 2)
    encoded.results["encode"] = chosen(candidates, 1).results["default"]
    encoded.encode = "encode"
    rig.send(0, image(2), result=encoded)
    assert rig.matches(image(2)) == [0.0, 100.0, 0.0]


def test_an_endpoint_remembers_its_latest_media():
    rig = Rig(cacheSizeInMBPerServer=4)
    rig.send(0, image(1), image(2))
    rig.send(0, image(1))
    rig.send(0, image(3))
    assert [rig.matches(image(n))[0] for n in (1, 2, 3)] == [100.0, 0.0, 100.0]


@pytest.mark.parametrize(
    ("status", "cause", "ttft_s", "kept"),
    [
        (200, "natural", 0.1, True),
        (503, "natural", 0.1, False),
        (0, "error", None, False),
        (0, "client-disconnect", 0.2, True),
    ],
)
def test_a_request_that_was_not_computed_takes_back_what_it_added(
    status: int, cause: str, ttft_s: float | None, kept: bool
):
    rig = Rig()
    rig.send(0, image(1))
    request = rig.send(0, image(1), image(2))
    rig.plugin.on_response_end(request, ResponseSummary(status=status, cause=cause, ttft_s=ttft_s))
    assert rig.matches(image(1))[0] == 100.0
    assert rig.matches(image(2))[0] == (100.0 if kept else 0.0)


def test_an_endpoint_that_left_is_forgotten_and_its_successor_holds_nothing():
    rig = Rig()
    request = rig.send(1, image(1))
    endpoint = rig.table.remove("default/e1")
    assert endpoint is not None
    successor = add_endpoint(rig.table, "e9")
    assert successor.slot == endpoint.slot
    assert rig.matches(image(1)) == [0.0, 0.0, 0.0]
    rig.plugin.on_response_end(request, ResponseSummary(status=500))
    assert rig.plugin.index.by_slot == {}


def test_the_media_of_one_request_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(media_embeddings, "MAX_ITEMS", 3)
    rig = Rig()
    rig.send(0, *(image(n) for n in range(10)))
    assert len(rig.plugin.index.by_slot[0]) == 3


def test_lookups_are_counted_at_whoever_encodes():
    rig = Rig()
    rig.send(0, image(1))
    rig.send(0, image(1), image(2, 300))
    rig.send(1, image(1))
    rig.send(0, Medium(MediaKind.VIDEO, "f" * 16))
    assert rig.series(QUERIES) == {("image",): 4, ("audio",): 0, ("video",): 1}
    assert rig.series(HITS) == {("e0", "image"): 1}
    ratios = rig.series(HIT_RATIO)[("image",)]
    assert (ratios.count, ratios.sum) == (3, 0.25)
    endpoint = rig.table.remove("default/e0")
    assert endpoint is not None
    rig.plugin.on_endpoint_removed(endpoint)
    assert rig.series(HITS) == {}


def test_a_successor_goes_on_with_index_and_numbers():
    rig = Rig()
    rig.send(0, image(1))
    successor: EndpointTable = rig.table
    plugin = make_plugin(MediaEmbeddingsProducer, successor)
    plugin.inherit(rig.plugin)
    rig.plugin = plugin
    assert rig.matches(image(1))[0] == 100.0
    assert rig.series(QUERIES)[("image",)] == 1


def test_the_state_shows_media_per_endpoint():
    rig = Rig(cacheSizeInMBPerServer=64)
    rig.send(1, image(1), image(2))
    rig.send(0, image(1))
    state = rig.plugin.dump_state()
    assert (state["itemsPerEndpoint"], state["totalEndpoints"]) == (32, 2)
    assert state["endpoints"] == [
        {"endpoint": "default/e1", "items": 2},
        {"endpoint": "default/e0", "items": 1},
    ]


def test_a_size_that_is_none_is_replaced_with_a_warning():
    plugin = make_plugin(MediaEmbeddingsProducer, None, {"cacheSizeInMBPerServer": 0})
    assert plugin.warnings == ["cacheSizeInMBPerServer 0 is no size; 4096 is used"]
    assert plugin.dump_state()["itemsPerEndpoint"] == 2048
    assert make_plugin(MediaEmbeddingsProducer).warnings == []
