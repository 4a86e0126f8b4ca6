"""The folder a run keeps its files in: what is there before the first process starts."""

import shutil

import yaml

from cli.local.plan import Plan


def prepare(plan: Plan) -> None:
    """Put the last run's logs aside, remove its endpoints, write what its processes read."""
    previous = plan.logs.with_name("logs.previous")
    if plan.logs.exists():
        shutil.rmtree(previous, ignore_errors=True)
        plan.logs.replace(previous)
    plan.logs.mkdir(parents=True)
    for pool in plan.pools:
        pool.folder.mkdir(parents=True, exist_ok=True)
        pool.endpoints_file.unlink(missing_ok=True)
        pool.picker_file.write_text(yaml.safe_dump(dict(pool.picker_config), sort_keys=False))
        pool.objects_file.write_text(yaml.safe_dump_all(map(dict, pool.objects), sort_keys=False))
    if (ipp := plan.processor) is not None:
        ipp.folder.mkdir(parents=True, exist_ok=True)
        if ipp.config is not None:
            ipp.config_file.write_text(yaml.safe_dump(dict(ipp.config), sort_keys=False))
        ipp.policies_file.write_text(yaml.safe_dump_all(map(dict, ipp.policies), sort_keys=False))
