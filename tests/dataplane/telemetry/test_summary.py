"""Quantiles of histograms, and the bounds of what is read."""

from __future__ import annotations

import msgspec
import pytest
import redis
import redis.asyncio

from dataplane.telemetry.publisher import Publisher
from dataplane.telemetry.summary import FIELD, STREAM, Summary, quantile
from tests.support.telemetry import summary

BOUNDS = (1.0, 2.0, 4.0)


@pytest.mark.parametrize(
    ("counts", "share", "value"),
    [
        ([0, 0, 0, 0], 0.5, None),
        ([4, 0, 0, 0], 0.5, 0.5),
        ([0, 4, 0, 0], 0.25, 1.25),
        ([2, 0, 2, 0], 0.5, 1.0),
        ([2, 0, 2, 0], 0.95, 3.8),
        ([1, 0, 0, 9], 0.95, 4.0),
        ([0, 0, 0, 1], 0.5, 4.0),
    ],
)
def test_quantiles_are_linear_within_a_bucket(counts: list[int], share: float, value: float | None) -> None:
    assert quantile(BOUNDS, counts, share) == (None if value is None else pytest.approx(value))


@pytest.mark.parametrize("change", [{"requests": -1}, {"intervalS": 0}, {"worker": ""}, {"hitRatio": 1.5}])
def test_what_makes_no_sense_is_no_summary(change: dict[str, object]) -> None:
    good = msgspec.to_builtins(summary())
    assert msgspec.convert(good, Summary).requests == 10
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(good | change, Summary)


async def test_summaries_reach_valkey_and_one_that_cannot_is_dropped(valkey: str) -> None:
    client = redis.asyncio.Redis.from_url(valkey, single_connection_client=True)
    publisher = Publisher(client, lambda: summary("w7"))
    assert await publisher.publish()
    entries = await client.xrange(STREAM)
    assert [msgspec.json.decode(fields[FIELD], type=Summary).worker for _, fields in entries] == ["w7"]
    await publisher.stop()
    away = redis.asyncio.Redis.from_url("redis://127.0.0.1:1/0", single_connection_client=True)
    unheard = Publisher(away, summary)
    assert not await unheard.publish()
    await unheard.stop()
