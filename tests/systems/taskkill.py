"""A stand-in for `taskkill /T /F /PID n` of Windows: kills a process and its descendants."""

import os
import signal
import sys
from pathlib import Path

assert sys.argv[1:4] == ["/T", "/F", "/PID"], sys.argv
children: dict[int, list[int]] = {}
for entry in Path("/proc").iterdir():
    if entry.name.isdigit():
        try:
            stat = (entry / "stat").read_text()
        except OSError:
            continue
        children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))
waiting = [int(sys.argv[4])]
while waiting:
    pid = waiting.pop()
    waiting += children.get(pid, [])
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
