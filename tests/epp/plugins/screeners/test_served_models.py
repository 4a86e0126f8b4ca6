"""served-models-screener: who is kept for which model, and that changes are seen."""

import numpy as np
import pytest

from epp.interfaces.attributes import SERVED_MODELS, ServedModel
from epp.interfaces.endpoint import EndpointSpec, EndpointTable
from epp.interfaces.request_control import Screener
from epp.plugins.screeners.served_models import ServedModelsScreener
from tests.support.pool import make_plugin, make_request

BY_EXTRACTOR = SERVED_MODELS.by("models-data-extractor")


def table(**models: tuple[str, ...]) -> EndpointTable:
    """Endpoints by name with the models discovery says they serve; none: it does not say."""
    table = EndpointTable(capacity=2)
    for number, (name, served) in enumerate(models.items(), 1):
        table.add(EndpointSpec(name, "default", f"10.0.0.{number}", 8000, models=served))
    return table


def kept(screener: ServedModelsScreener, pool: EndpointTable, model: str) -> str:
    """Names of the endpoints left for a model."""
    request = make_request(model=model)
    return "".join(each.spec.name for each in screener.screen(request, pool.all()).endpoints)


@pytest.mark.parametrize(("model", "names"), [("llama", "ac"), ("qwen", "abc"), ("nobody", "c"), ("", "abc")])
def test_endpoints_of_other_models_are_left_out(model: str, names: str):
    pool = table(a=("llama", "qwen"), b=("qwen",), c=())
    screener = make_plugin(ServedModelsScreener, pool)
    assert isinstance(screener, Screener)
    assert kept(screener, pool, model) == names


def test_what_the_servers_say_counts_where_discovery_says_nothing():
    pool = table(a=("llama",), b=(), c=())
    screener = make_plugin(ServedModelsScreener, pool)
    for name, model in (("a", "qwen"), ("b", "qwen")):
        pool.annotate(pool.get(f"default/{name}"), BY_EXTRACTOR, (ServedModel(model),))
    assert (kept(screener, pool, "llama"), kept(screener, pool, "qwen")) == ("ac", "bc")


def test_changes_of_lists_and_of_the_pool_are_seen():
    pool = table(a=(), b=())
    screener = make_plugin(ServedModelsScreener, pool)
    assert kept(screener, pool, "llama") == "ab"
    pool.annotate(pool.get("default/a"), BY_EXTRACTOR, (ServedModel("qwen"),))
    assert kept(screener, pool, "llama") == "b"
    pool.annotate(pool.get("default/a"), BY_EXTRACTOR, (ServedModel("qwen"), ServedModel("llama")))
    assert kept(screener, pool, "llama") == "ab"
    pool.annotate(pool.get("default/a"), BY_EXTRACTOR, ())
    assert kept(screener, pool, "llama") == "b"
    for number in range(3, 8):
        spec = EndpointSpec(str(number), "default", f"10.0.0.{number}", 8000, models=("llama",))
        pool.add(spec)
    assert kept(screener, pool, "llama") == "b34567"
    pool.remove("default/b")
    assert kept(screener, pool, "llama") == "34567"


def test_the_whole_pool_gives_the_same_set_as_long_as_nothing_changes():
    pool = table(a=("llama",), b=("qwen",))
    screener = make_plugin(ServedModelsScreener, pool)
    first = screener.screen(make_request(model="llama"), pool.all())
    assert screener.screen(make_request(model="llama"), pool.all()) is first
    subset = pool.all().where(np.array([False, True]))
    assert len(screener.screen(make_request(model="llama"), subset)) == 0
    assert len(screener.screen(make_request(model="qwen"), subset)) == 1
