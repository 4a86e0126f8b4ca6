"""Streams of a process that starts others."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.support.waiting import PATIENCE_S

CHILDREN = 60

PROGRAM = f"""
import asyncio, collections, os
from dataplane.processes.child import die_with_parent
from dataplane.xds.transport import AdsStream, ServerAddress, StreamError

async def subscribe(target):
    while True:
        try:
            stream = await AdsStream.open(ServerAddress(target=target))
            await stream.receive()
        except StreamError:
            await stream.close()

async def main():
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    streams = asyncio.create_task(subscribe(f"{{host}}:{{port}}"))
    ends = collections.Counter()
    for _ in range({CHILDREN}):
        await asyncio.sleep(0.005)
        child = await asyncio.create_subprocess_exec("true", preexec_fn=die_with_parent(os.getpid()))
        ends[await child.wait()] += 1
    assert not streams.done(), streams
    print(dict(ends), flush=True)
    os._exit(0)

asyncio.run(main())
"""


def test_a_process_with_a_stream_starts_others_and_none_of_them_crashes() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GRPC_")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
        env=environment,
    )
    assert (done.stdout, done.returncode) == (f"{{0: {CHILDREN}}}\n", 0), done.stderr
    assert "fork" not in done.stderr, "grpc does nothing about forks"
