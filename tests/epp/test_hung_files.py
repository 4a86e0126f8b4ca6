"""A picker process ends in order although the file system under its files does not answer any more."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE_S

PROGRAM = """
import os, sys, threading
from epp.app import run
from epp.options import parse_args

stat, looks = os.stat, 0

def hanging_stat(path, *args, **fields):
    global looks
    if path == ENDPOINTS:
        looks += 1
        if looks > HANGS_AFTER:
            print("hangs", flush=True)
            threading.Event().wait()
    return stat(path, *args, **fields)

os.stat = hanging_stat
sys.exit(run(parse_args(sys.argv[1:])))
"""
"""A picker for which the file system hangs when it has looked at the endpoints file so many times."""


@pytest.mark.parametrize(
    "hangs_after", [pytest.param(0, id="at the start"), pytest.param(3, id="while it runs")]
)
def test_a_hung_endpoints_file_does_not_keep_the_process_from_ending(tmp_path: Path, hangs_after: int):
    endpoints = tmp_path / "endpoints.yaml"
    endpoints.write_text("endpoints: [{name: a, address: 127.0.0.1, port: 1}]")
    program = PROGRAM.replace("HANGS_AFTER", str(hangs_after)).replace("ENDPOINTS", repr(str(endpoints)))
    flags = ["--endpoints-file", str(endpoints), "--host", "127.0.0.1", "--secure-serving=false"]
    flags += ["--grpc-port", "0", "--grpc-health-port", "0", "--metrics-port", "0"]
    with subprocess.Popen(
        [sys.executable, "-c", program, *flags], stdout=subprocess.PIPE, text=True
    ) as picker:
        try:
            assert picker.stdout is not None
            assert picker.stdout.readline() == "hangs\n"
            picker.send_signal(signal.SIGTERM)
            assert picker.wait(timeout=PATIENCE_S) == 0
        finally:
            picker.kill()
