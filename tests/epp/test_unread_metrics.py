"""A picker whose configuration reads no measured load polls nobody, until a reload wants it."""

import asyncio
import json
from pathlib import Path

from epp.app import Picker
from epp.options import EppOptions
from tests.epp.datalayer.model_server import ModelServer, answer, page
from tests.support.waiting import until

CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins: [{{type: {scorer}}}]
"""


async def test_scraping_begins_and_ends_with_the_first_and_the_last_reader(tmp_path: Path) -> None:
    server = ModelServer(answer(page(waiting=7)))
    await server.start()
    config, endpoints = tmp_path / "config.yaml", tmp_path / "endpoints.json"
    listed = {"name": "a", "address": "127.0.0.1", "port": str(server.port)}
    endpoints.write_text(json.dumps({"endpoints": [listed]}))
    config.write_text(CONFIG.format(scorer="active-request-scorer"))
    picker = Picker(
        EppOptions(
            grpc_port=0,
            grpc_health_port=0,
            metrics_port=0,
            host="127.0.0.1",
            metrics_host="127.0.0.1",
            secure_serving=False,
            config_file=str(config),
            endpoints_file=str(endpoints),
            watch_config=False,
        )
    )
    await picker.start()
    try:
        await asyncio.sleep(0.3)  # six refresh intervals
        assert (server.connections, server.requests) == (0, [])
        config.write_text(CONFIG.format(scorer="queue-scorer"))
        assert await picker.reloader.reload() == []
        await until(lambda: picker.table.waiting.max() == 7)
        config.write_text(CONFIG.format(scorer="active-request-scorer"))
        assert await picker.reloader.reload() == []
        assert not picker.table.fresh.any()
        await asyncio.sleep(0.1)  # what was sent before has arrived by then
        asked = len(server.requests)
        await asyncio.sleep(0.3)
        assert len(server.requests) == asked
    finally:
        await picker.stop()
        await server.stop()
