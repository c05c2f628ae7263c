"""Kill agents at every journal write and every booking: part of `make torture`."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from itertools import count
from pathlib import Path

from crash.test_agents import POSITIONS, crash, start

MOST = 20  # failures: with more, something else is wrong


def main() -> int:
    """Run every point of every position."""
    failures: list[str] = []
    total = 0
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        expected = start(root / "undisturbed").stdout
        for position in POSITIONS:
            began = time.monotonic()
            for point in count(1):
                folder = root / f"{position}-{point}"
                found = crash(folder, position, point, expected)
                shutil.rmtree(folder)
                if found is False:
                    break
                total += 1
                if found:
                    failures.append(str(found))
                    print(found, flush=True)
                if len(failures) > MOST:
                    return 1
            print(f"{position}: {point - 1} points, {time.monotonic() - began:.0f} s", flush=True)
    print(f"{total - len(failures)} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
