"""A clean environment: the wheel of the package with its extras, and the libraries that the pages name."""

from __future__ import annotations

import fcntl
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from footprint.environment import create, uv

EXTRAS = ("models", "mcp", "ui")
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
    """Install the wheel with the extras that the pages name, then the libraries, at the versions of the lock."""
    made = create(base, *EXTRAS)
    locked = uv(
        "export", "--frozen", "--all-groups", "--all-extras", "--no-emit-project", "--no-hashes"
    )
    constraints = base / "constraints.txt"
    constraints.write_text(locked, encoding="utf-8")
    python = str(made.folder / "bin" / "python")
    uv("pip", "install", "--python", python, "-c", str(constraints), *LIBRARIES)
