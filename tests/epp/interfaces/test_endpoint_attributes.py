"""Attributes of endpoints: columns of numbers, other values, and whose they are."""

import math

import pytest

from dataplane.plugin.base import DataKey
from epp.interfaces.endpoint import EndpointTable
from epp.interfaces.endpoint_attributes import MAX_KEYS, EndpointAttributes
from tests.support.pool import add_endpoint, make_table

HEAT = DataKey[float]("Heat", "thermometer")
PLACE = DataKey[str]("Place", "map")


def test_a_number_is_read_with_and_without_its_producer():
    table = make_table(2)
    first, second = table.all().endpoints
    table.annotate(first, HEAT, 21)
    for key in (HEAT, HEAT.by("")):
        column = table.attributes.numbers(key)
        assert column is not None
        assert column[first.slot] == 21.0
        assert math.isnan(column[second.slot])
        assert table.attributes.get(first.slot, key) == 21.0
        assert table.attributes.get(second.slot, key) is None
    assert table.attributes.numbers(HEAT.by("other")) is None
    assert table.attributes.get(first.slot, HEAT.by("other")) is None


def test_other_values_are_kept_as_they_are_and_changes_are_numbered():
    table = make_table(2)
    first, second = table.all().endpoints
    table.annotate(first, PLACE, "here")
    column = table.attributes.objects(PLACE)
    assert column is not None
    version = column.version
    table.annotate(first, PLACE, "here")
    assert (column.values[first.slot], column.version) == ("here", version)
    table.annotate(first, PLACE, "there")
    assert table.attributes.get(first.slot, PLACE) == "there"
    assert column.version > version
    assert table.attributes.get(second.slot, PLACE) is None


def test_none_takes_a_value_away():
    table = make_table(1)
    (endpoint,) = table.all().endpoints
    for key, value in ((HEAT, 1.0), (PLACE, "here")):
        table.annotate(endpoint, key, value)
        table.annotate(endpoint, key, None)
        assert table.attributes.get(endpoint.slot, key) is None
    table.annotate(endpoint, DataKey("Never", "seen"), None)
    assert table.attributes.of(endpoint.slot) == {}


def test_a_slots_next_endpoint_starts_without_attributes_and_the_last_one_cannot_write_any():
    table = EndpointTable(capacity=1)
    old = add_endpoint(table, "old")
    table.annotate(old, HEAT, 1.0)
    table.annotate(old, PLACE, "here")
    table.remove(old.spec.id)
    new = add_endpoint(table, "new")
    assert new.slot == old.slot
    assert table.attributes.of(new.slot) == {}
    table.annotate(old, HEAT, 2.0)
    assert table.attributes.of(new.slot) == {}


def test_a_table_that_grows_keeps_what_is_there():
    table = EndpointTable(capacity=1)
    first = add_endpoint(table, "first")
    table.annotate(first, HEAT, 1.0)
    table.annotate(first, PLACE, "here")
    second = add_endpoint(table, "second")
    assert table.attributes.of(first.slot) == {"Heat/thermometer": 1.0, "Place/map": "here"}
    assert table.attributes.of(second.slot) == {}
    table.annotate(second, HEAT, 2.0)
    assert table.attributes.of(second.slot) == {"Heat/thermometer": 2.0}


def test_a_key_keeps_the_kind_of_its_first_value():
    attributes = EndpointAttributes(1)
    attributes.put(0, HEAT, 1.0)
    attributes.put(0, PLACE, "here")
    with pytest.raises(ValueError, match=r"attribute Heat(/thermometer)? is a number, so a value of another"):
        attributes.put(0, HEAT, "warm")
    with pytest.raises(ValueError, match=r"attribute Place(/map)? has values that are no numbers, so 3 is"):
        attributes.put(0, PLACE, 3)
    assert attributes.of(0) == {"Heat/thermometer": 1.0, "Place/map": "here"}


def test_keys_are_limited():
    attributes = EndpointAttributes(1)
    for number in range(MAX_KEYS // 2):
        attributes.put(0, DataKey(f"key-{number}", "p"), 1.0)
    with pytest.raises(ValueError, match=f"there are {MAX_KEYS} endpoint attributes"):
        attributes.put(0, DataKey("one-more", "p"), 1.0)
    assert len(attributes.of(0)) == MAX_KEYS // 2


def test_attributes_nobody_produces_any_more_are_forgotten():
    attributes = EndpointAttributes(1)
    attributes.put(0, HEAT, 1.0)
    attributes.put(0, PLACE, "here")
    attributes.retain([PLACE])
    assert attributes.of(0) == {"Place/map": "here"}
    assert attributes.get(0, PLACE.by("")) == "here"
    assert attributes.numbers(HEAT.by("")) is None


def test_a_column_that_takes_anothers_place_has_another_version():
    attributes = EndpointAttributes(1)
    seen = set()
    for _ in range(3):
        attributes.put(0, PLACE, "here")
        column = attributes.objects(PLACE)
        assert column is not None
        seen.add(column.version)
        attributes.retain([])
    assert len(seen) == 3
