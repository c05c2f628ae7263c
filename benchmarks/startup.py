"""Start-up: importing the package, and the command line's help."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

from .measuring import Row


def _seconds(*command: str) -> float:
    def once() -> float:
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        return time.perf_counter() - start

    return statistics.median(once() for _ in range(9))


def rows() -> Iterator[Row]:
    """Measure and yield the figures."""
    bare = _seconds(sys.executable, "-c", "pass")
    ours = _seconds(sys.executable, "-c", "import loopwright")
    yield Row("import loopwright, over bare python", ours - bare, 0.2, "s", f"bare {bare:.3f} s")
    helped = _seconds(sys.executable, "-m", "loopwright", "--help")
    yield Row("loopwright --help, in all", helped, 0.4, "s")


if __name__ == "__main__":
    for row in rows():
        print(row)
