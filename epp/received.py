"""The control plane's last good configuration, with which a picker starts while nobody can tell it better."""

from __future__ import annotations

import logging

from dataplane.config.given import Given, read_set
from dataplane.errors import ConfigError
from epp.options import EppOptions

log = logging.getLogger(__name__)


def kept_configuration(options: EppOptions) -> Given | None:
    """The last good one on disk, if there is any. Blocks; why there is none is told when objects are read."""
    if not options.xds_cache:
        return None
    # Only here: the protocol's messages come with it.
    from dataplane.xds.codec import unwrapped
    from dataplane.xds.messages import PICKER_CONFIG
    from dataplane.xds.store import Store

    try:
        held = Store(options.xds_cache, options.pool_name).load().get(PICKER_CONFIG)
        named = [] if held is None else [each for each in held.resources if each.name == options.pool_name]
        return read_set(unwrapped(named[0].value)) if named else None
    except ConfigError as error:
        log.warning("starting without the last configuration of the control plane: %s", error)
        return None
