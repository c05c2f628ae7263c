"""A clean environment: the wheel of the package with its extras, and the libraries that the pages name."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
UV = shutil.which("uv", path=str(Path(sys.executable).parent)) or "uv"
LIBRARIES = ("fastapi", "pytest", "httpx2")  # named by pages, and not dependencies of the package
SECONDS = 300


@dataclass(frozen=True)
class Environment:
    """A folder with an environment, and how to run commands in it."""

    folder: Path

    def run(self, command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run a command of a page in a shell, without keys and with a home of its own."""
        return subprocess.run(
            ["bash", "-c", command],
            cwd=cwd,
            env=self.variables(cwd),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def variables(self, cwd: Path) -> dict[str, str]:
        """Return the variables of a command."""
        dropped = ("LOOPWRIGHT_", "OTEL_", "PYTHON", "VIRTUAL_ENV")
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(dropped) and not name.endswith("_API_KEY")
        }
        path = os.pathsep.join([str(self.folder / "bin"), os.environ.get("PATH", "")])
        return kept | {"PATH": path, "HOME": str(cwd / ".home"), "COLUMNS": "100", "NO_COLOR": "1"}


def shared(base: Path) -> Environment:
    """Return the environment below a folder; the first of several processes creates it."""
    base.mkdir(parents=True, exist_ok=True)
    with (base / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (base / "ready").exists():
            _create(base)
            (base / "ready").touch()
    return Environment(base / "environment")


def _create(base: Path) -> None:
    """Build the wheel, and install it at the versions of the lock."""
    locked = _uv(
        "export", "--frozen", "--all-groups", "--all-extras", "--no-emit-project", "--no-hashes"
    )
    constraints = base / "constraints.txt"
    constraints.write_text(locked, encoding="utf-8")
    with tempfile.TemporaryDirectory(dir=base) as wheelhouse:
        _uv("build", "--wheel", "--out-dir", wheelhouse, str(ROOT))
        wheel = next(Path(wheelhouse).glob("*.whl"))
        _uv("venv", "--python", sys.executable, str(base / "environment"))
        python = base / "environment" / "bin" / "python"
        target = [f"loopwright[{','.join(_extras())}] @ {wheel.as_uri()}", *LIBRARIES]
        _uv("pip", "install", "--python", str(python), "-c", str(constraints), *target)


def _extras() -> list[str]:
    """Return the extras that the jobs need, as far as the package has them."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return [name for name in ("models", "mcp", "ui") if f"\n{name} = [" in text]


def _uv(*words: str) -> str:
    """Run uv from its cache, which the installation of the tests filled, or else from the index."""
    for offline in (["--offline"], []):
        command = [UV, "--quiet", *offline, *words]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS)
        if done.returncode == 0:
            return done.stdout
    raise AssertionError(f"{' '.join(command)}\n{done.stderr}")
