"""The state folder: nothing stale."""

from pathlib import Path

import yaml

from cli.local.state import prepare
from epp.objects.documents import Scope
from epp.objects.files import ObjectFiles, Reading
from epp.objects.model import InferenceObjective, RewriteRule, RewriteTarget
from tests.cli.local.plans import two_pools


def test_new_run_puts_old_logs_aside_and_forgets_old_endpoints(tmp_path: Path):
    plan = two_pools(tmp_path)
    prepare(plan)
    (plan.logs / "envoy.log").write_text("first run")
    plan.pools[0].endpoints_file.write_text("endpoints: []")
    prepare(plan)
    assert list(plan.logs.iterdir()) == []
    assert (tmp_path / "logs.previous/envoy.log").read_text() == "first run"
    assert not plan.pools[0].endpoints_file.exists()


def test_picker_configuration_is_written_as_planned(tmp_path: Path):
    plan = two_pools(tmp_path)
    prepare(plan)
    for pool in plan.pools:
        assert yaml.safe_load(pool.picker_file.read_text()) == pool.picker_config


def test_objectives_and_rewrites_are_written_as_documents_the_picker_reads(tmp_path: Path):
    plan = two_pools(tmp_path)
    prepare(plan)
    small, large = plan.pools
    reading = ObjectFiles(str(small.objects_file), Scope("small")).read(Reading())
    assert (reading.problems, reading.skipped, reading.notes) == ((), (), ())
    assert list(reading.objectives()) == [
        InferenceObjective("interactive", 10),
        InferenceObjective("batch", -1),
    ]
    (rewrite,) = reading.rewrites()
    assert rewrite.rules == (
        RewriteRule((RewriteTarget("llama-8b", 9), RewriteTarget("llama-8b:tuned", 1)), ("chat", "llama-8b")),
    )
    assert ObjectFiles(str(large.objects_file), Scope("large")).read(Reading()) == Reading()
