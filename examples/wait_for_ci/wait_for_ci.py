"""Push a change, wait for CI, and repair it until CI is green: `python examples/wait_for_ci/wait_for_ci.py`.

The loop is in wait_for_ci.yaml. The fake CI of ci.py is another process, which sends an event when it has finished.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from loopwright import run_sync
from loopwright.documents import load

HERE = Path(__file__).parent
JOURNAL = "sqlite:.loopwright/runs.db"


def main() -> int:
    """Start the CI, run the loop, end the CI, and print what CI said of each push."""
    with subprocess.Popen([sys.executable, HERE / "ci.py", JOURNAL]) as ci:
        try:
            result = run_sync(load(HERE / "wait_for_ci.yaml"), journal=JOURNAL)
        finally:
            ci.terminate()
    for item in result.loops["repair"].history:
        said = item.output["value"]
        failed = ", ".join(re.findall(r"FAIL: (\w+)", said["log"]))
        print(f"push {item.number}: {said['conclusion']} {failed}".rstrip())
    print(f"{result.status}: {result.detail}")
    return result.status.exit_code


if __name__ == "__main__":
    sys.exit(main())
