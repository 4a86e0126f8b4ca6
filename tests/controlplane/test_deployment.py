"""What Django says of the settings of a control plane that others than this machine reach: nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]


def test_a_public_control_plane_passes_every_check_of_deployments(tmp_path: Path) -> None:
    own = {name: text for name, text in os.environ.items() if not name.startswith("POINTSMAN_")}
    environment = own | {
        "POINTSMAN_STATE": str(tmp_path),
        "POINTSMAN_HOSTS": "gateway.example.com",
        "DJANGO_SETTINGS_MODULE": "controlplane.settings",
        "PYTHONPATH": str(ROOT),
    }
    environment.pop("DATABASE_URL", None)
    done = subprocess.run(
        [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "INFO"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
