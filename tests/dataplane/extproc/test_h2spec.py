"""The conformance suite h2spec, built with the machine's Go, against the server over TCP and TLS.

Its most important cases are repeated without Go in test_http2_faults.py.
"""

import os
import shutil
import subprocess
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from dataplane.extproc.http2 import Limits
from dataplane.extproc.server import ServerOptions
from dataplane.server_tls import TlsOptions
from tests.dataplane.extproc.running_server import EchoService, running

ROOT = Path(__file__).resolve().parents[3]
CACHE = ROOT / ".state" / "h2spec"
MODULE = "github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible"
CASES = 146

NEEDS_A_TABLE = (
    "needs a dynamic header table: our SETTINGS allow none, h2spec acknowledges them and uses one "
    "all the same, which RFC 7541 makes a COMPRESSION_ERROR"
)
NOT_APPLICABLE = {
    ("generic/5", "Sends a dynamic table size update"): NEEDS_A_TABLE,
    ("generic/5", "Sends multiple dynamic table size update"): NEEDS_A_TABLE,
    ("http2/6.10", "Sends multiple CONTINUATION frames preceded by a HEADERS frame"): NEEDS_A_TABLE,
}
"""(section, case) -> why the server must not pass it."""


@pytest.fixture(scope="module")
def h2spec() -> Path:
    """The program, built once and kept in the state folder."""
    program = CACHE / "h2spec"
    if program.exists():
        return program
    go = shutil.which("go")
    if go is None:
        pytest.skip("h2spec is built with Go, which is not installed")
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as directory:
        environment = {**os.environ, "GOBIN": directory, "GOFLAGS": "-mod=mod"}
        built = subprocess.run(
            [go, "install", MODULE], env=environment, capture_output=True, text=True, timeout=500
        )
        if built.returncode != 0:
            pytest.skip(f"h2spec cannot be built here: {built.stderr.strip()[-300:]}")
        os.replace(Path(directory, "h2spec"), program)
    return program


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("encrypted", [False, True], ids=["tcp", "tls"])
def test_every_case_that_applies_passes(h2spec: Path, encrypted: bool, tmp_path: Path):
    options = ServerOptions(
        host="127.0.0.1",
        port=0,
        tls=TlsOptions() if encrypted else None,
        limits=Limits(linger_s=0.2, max_concurrent_streams=100),
    )
    report = tmp_path / "report.xml"
    with running(options, EchoService().services) as server:
        port = str(server.server.port)
        command = [str(h2spec), "generic", "http2", "hpack", "--strict", "-p", port, "-j", str(report)]
        command += ["-t", "-k"] if encrypted else []
        run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    cases = ET.parse(report).getroot().findall(".//testcase")
    results = {(case.get("package"), case.get("classname")): [part.tag for part in case] for case in cases}
    assert len(results) == CASES, run.stdout[-2000:]
    failed = {name for name, tags in results.items() if tags}
    assert failed == NOT_APPLICABLE.keys(), run.stdout[-4000:]
