"""Keys of data: one object per name, producer and class of the values."""

from dataplane.plugin.base import DataKey


def test_keys_of_the_same_names_and_class_are_one():
    key: DataKey[int] = DataKey("KeyOne", "p", int)
    assert DataKey("KeyOne", "p", int) is key
    assert DataKey("KeyOne", "", int).by("p") is key
    assert (key.type_name, key.producer, key.value, repr(key)) == ("KeyOne", "p", int, "KeyOne/p")


def test_a_key_without_a_class_means_the_one_declared_first_whatever_comes_first():
    before: DataKey[int] = DataKey("KeyTwo", "p")
    assert before.value is None
    declared: DataKey[int] = DataKey("KeyTwo", value=int)
    assert before.value is int
    assert declared.by("p") is before
    assert DataKey("KeyTwo", "p") is before
    assert DataKey("KeyTwo") is declared


def test_a_key_of_another_class_is_another_key():
    first: DataKey[int] = DataKey("KeyThree", value=int)
    second: DataKey[str] = DataKey("KeyThree", value=str)
    assert second is not first
    assert (first.value, second.value, DataKey("KeyThree").value) == (int, str, int)
    assert second.by("p") is DataKey("KeyThree", "p", str)
