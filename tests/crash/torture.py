"""Kill -9 at every journal write and every charged call: `make torture`.

Prints one line per position and exits with 1 if a resume differed from the undisturbed run.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path

from harness import POSITIONS, crash, reference


def main() -> int:
    """Run every point of every position."""
    failures: list[str] = []
    total = 0
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        expected = reference(root / "reference")
        print(f"undisturbed: {expected.bill.total()} charged calls")
        for position in POSITIONS:
            began, point = time.monotonic(), 1
            while True:
                folder = root / f"{position}-{point}"
                found = crash(folder, position, point, expected)
                if found is False:
                    break
                if found:
                    failures.append(str(found))
                shutil.rmtree(folder)
                point += 1
            total += point - 1
            print(f"{position}: {point - 1} points, {time.monotonic() - began:.0f} s", flush=True)
    print("\n".join(failures))
    print(f"{total - len(failures)} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
