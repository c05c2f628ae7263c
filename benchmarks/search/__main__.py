"""Run every program of this package and of `benchmarks.published`, and exit with 1 if one of them missed a bound.

Names of programs as arguments run only these: `python -m benchmarks.search confirm circle_packing`.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

FOLDERS = (Path(__file__).parent, Path(__file__).parent.parent / "published")


def main(names: list[str]) -> int:
    """Run the programs by their names; by default all."""
    found = {
        file.stem: f"benchmarks.{folder.name}.{file.stem}"
        for folder in FOLDERS
        for file in sorted(folder.glob("*.py"))
        if not file.stem.startswith("_")
    }
    if unknown := set(names) - set(found):
        print(f"no such program: {', '.join(sorted(unknown))}; there are {', '.join(found)}")
        return 2
    missed = []
    for name in names or found:
        print(f"\n== {name}: python -m {found[name]}", flush=True)
        began = time.monotonic()
        code = subprocess.run([sys.executable, "-m", found[name]], check=False).returncode
        print(f"== {name}: {'ok' if not code else 'OVER'}, {time.monotonic() - began:.0f} s")
        missed += [name] if code else []
    print(f"\n{'missed: ' + ', '.join(missed) if missed else 'all bounds are kept'}")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
