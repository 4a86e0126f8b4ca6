"""Has data sources read their certificates again when the files change, beside the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from dataplane.aside import aside
from dataplane.errors import ConfigError
from epp.interfaces.data_layer import CertificateFollower

log = logging.getLogger(__name__)

LOOK_S: Final = 5.0
"""Pause between two looks at the files."""


async def follow_certificates(sources: Sequence[CertificateFollower]) -> None:
    """Runs until it is cancelled. Files that cannot be used are said, and change nothing."""
    while True:
        await asyncio.sleep(LOOK_S)
        for source in sources:
            name = getattr(source, "name", "a data source")
            try:
                renewed = await aside(source.renew_certificates)
            except ConfigError as error:
                log.error("%s: its new certificates are not used, those there are stay: %s", name, error)
            except Exception:  # a source may come from outside; its defect must not end the following
                log.exception("%s failed to read its certificates again", name)
            else:
                if renewed:
                    log.info("%s: new connections use its new certificates", name)
