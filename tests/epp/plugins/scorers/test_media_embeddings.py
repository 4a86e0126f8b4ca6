"""mm-embeddings-cache-scorer: the share of a request's media that an endpoint has encoded before."""

import numpy as np

from epp.interfaces.attributes import ENCODER_MATCH, EncoderMatch
from epp.interfaces.request import InferenceRequest
from epp.plugins.scorers.media_embeddings import MediaEmbeddingsScorer
from tests.support.pool import make_plugin, make_request, make_table
from tests.support.request_path import graph_of


def matched(*held: float, producer: str = "") -> tuple[InferenceRequest, EncoderMatch]:
    table = make_table(len(held))
    match = EncoderMatch(table.all(), np.array(held), 400.0)
    request = make_request()
    request.put(ENCODER_MATCH.by(producer) if producer else ENCODER_MATCH, match)
    return request, match


def test_the_score_is_the_share_held():
    request, match = matched(400.0, 100.0, 0.0)
    scorer = make_plugin(MediaEmbeddingsScorer, match.candidates.table)
    assert scorer.score(request, match.candidates).tolist() == [1.0, 0.25, 0.0]
    assert scorer.score_few(request, match.candidates) == [1.0, 0.25, 0.0]
    narrowed = match.candidates.where(np.array([False, True, True]))
    assert scorer.score(request, narrowed).tolist() == [0.25, 0.0]


def test_a_request_without_media_prefers_nobody():
    table = make_table(2)
    scorer = make_plugin(MediaEmbeddingsScorer, table)
    assert scorer.score(make_request(), table.all()).tolist() == [0.0, 0.0]
    assert scorer.score_few(make_request(), table.all()) == [0.0, 0.0]


def test_the_producer_can_be_named():
    request, match = matched(400.0, 0.0, producer="mine")
    scorer = make_plugin(MediaEmbeddingsScorer, match.candidates.table, {"producerName": "mine"})
    assert scorer.score(request, match.candidates).tolist() == [1.0, 0.0]


def test_the_default_producer_is_created():
    graph = graph_of("- type: mm-embeddings-cache-scorer\n", make_table(1))
    assert "mm-embeddings-cache-producer" in graph.instances
