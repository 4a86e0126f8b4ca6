"""The description of the machine."""

from benchmarks.machine import cpu_model, describe_machine, installed


def test_cpu_model_is_the_first_named():
    assert cpu_model("processor\t: 0\nmodel name\t: AMD EPYC\nmodel name\t: other\n") == "AMD EPYC"


def test_cpu_without_a_name_is_its_architecture():
    assert cpu_model("Features : fp asimd\n") != ""


def test_package_that_is_not_there_has_no_version():
    assert installed("no-such-distribution") == ""
    assert installed("msgspec")


def test_this_machine_can_be_described():
    machine = describe_machine()
    assert machine.cpus >= 1
    assert machine.memory_bytes > 0
    assert "pointsman" in machine.packages
