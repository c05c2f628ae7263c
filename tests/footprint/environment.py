"""An environment with the wheel of the package, at the versions of the lock, and nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
UV = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv") or "uv"


@dataclass(frozen=True)
class Environment:
    """An environment, and how to run its programs."""

    folder: Path

    def run(
        self, program: str, *words: str, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment, away from the sources of the repository."""
        keep = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "LOOPWRIGHT"))}
        return subprocess.run(
            [str(self.folder / "bin" / program), *words],
            check=check, capture_output=True, text=True, cwd=self.folder, env=keep,
        )  # fmt: skip

    @property
    def packages(self) -> Path:
        """The folder of installed packages."""
        return next(self.folder.glob("lib/python3*/site-packages"))

    def distributions(self) -> list[str]:
        """Return the names of the installed distributions."""
        code = "import importlib.metadata as m; print(*[d.name for d in m.distributions()])"
        return sorted(self.run("python", "-c", code).stdout.lower().split())

    def megabytes(self) -> float:
        """Return the size of the installed files, without compiled modules."""
        files = (path for path in self.packages.rglob("*") if path.is_file())
        return sum(path.stat().st_size for path in files if path.suffix != ".pyc") / 1e6


def create(folder: Path, *extras: str) -> Environment:
    """Build the wheel, and install it with extras into a new environment in a folder."""
    chosen = [word for extra in extras for word in ("--extra", extra)]
    wanted = uv(
        "export", "--frozen", "--no-default-groups", "--no-emit-project", "--no-hashes", *chosen
    )
    (folder / "requirements.txt").write_text(wanted, encoding="utf-8")
    uv("build", "--wheel", "--out-dir", str(folder / "dist"), str(ROOT))
    place = folder / "environment"
    uv("venv", "--python", sys.executable, str(place))
    wheel = next((folder / "dist").glob("*.whl"))
    uv(
        "pip", "install", "--no-deps", "--python", str(place / "bin" / "python"),
        "-r", str(folder / "requirements.txt"), str(wheel),
    )  # fmt: skip
    return Environment(place)


def uv(*words: str) -> str:
    """Run uv from its cache, which the installation of the tests filled; from the registry only if that fails."""
    keep = {k: v for k, v in os.environ.items() if k != "VIRTUAL_ENV"}
    for offline in (["--offline"], []):
        command = [UV, "--quiet", *offline, *words]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=keep)
        if done.returncode == 0:
            return done.stdout
    raise AssertionError(f"uv {' '.join(words)} failed:\n{done.stderr}")
