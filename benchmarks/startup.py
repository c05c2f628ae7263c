"""Start-up: importing the package, in time and memory, and the command line's help.

The modules are compiled before, as `make install` and pip do it; otherwise this measures the compiler.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Iterator

from .measuring import Row


def _seconds(*command: str) -> float:
    """Return the CPU seconds of a process, which other processes of the machine hardly change."""

    def once() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

    return statistics.median(once() for _ in range(9))


_IMPORT = """
import time
before = time.process_time()
import loopwright
print(time.process_time() - before)
"""
# VmHWM is the peak of this process; `ru_maxrss` would begin with that of its parent.
_PEAK = """
print(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0])
"""


def _printed(code: str) -> float:
    """Return the median of the numbers that code prints."""

    def once() -> float:
        command = [sys.executable, "-c", code]
        return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    return statistics.median(once() for _ in range(9))


def _compile() -> None:
    """Write the caches of all modules that are imported, also where the environment forbids it."""
    variables = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-m", "loopwright", "--help"]
    subprocess.run(command, check=True, capture_output=True, env=variables)


def rows() -> Iterator[Row]:
    """Measure and yield the figures."""
    _compile()
    yield Row("import loopwright, CPU time", _printed(_IMPORT), 0.1, "s")
    bare = _printed(_PEAK) * 1024 / 1e6
    memory = _printed(f"import loopwright\n{_PEAK}") * 1024 / 1e6 - bare
    yield Row("import loopwright, over bare python", memory, 25, "MB", f"bare {bare:.1f} MB")
    helped = _seconds(sys.executable, "-m", "loopwright", "--help")
    yield Row("loopwright --help, in all, CPU time", helped, 0.3, "s")


if __name__ == "__main__":
    for row in rows():
        print(row)
