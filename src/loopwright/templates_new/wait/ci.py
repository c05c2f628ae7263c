"""Stands for CI: `push` starts a build of total.py and prints its number. The build takes 0.3 seconds.

`finished` exits with 1 until the build PUSHED has finished, and then prints its number. `conclusion` exits with 1 if the build
FINISHED has failed, and prints why.
"""

import os
import runpy
import shutil
import sys
import time
from pathlib import Path

BUILDS = Path("builds")
SECONDS = 0.3


def push():
    BUILDS.mkdir(exist_ok=True)
    number = len(list(BUILDS.iterdir())) + 1
    shutil.copyfile("total.py", BUILDS / f"{number}.py")
    return number


def finished():
    number = os.environ["PUSHED"]
    started = (BUILDS / f"{number}.py").stat().st_mtime
    return number if time.time() > started + SECONDS else sys.exit(1)


def conclusion():
    build = runpy.run_path(str(BUILDS / f"{os.environ['FINISHED']}.py"))
    total = build["total"]([1, 2], 3)
    return "success" if total == 6 else sys.exit(f"failure: total([1, 2], 3) is {total} and not 6")


print({"push": push, "finished": finished, "conclusion": conclusion}[sys.argv[1]]())
