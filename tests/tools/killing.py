"""Stand between a client and an MCP server, and kill the server at the K-th message of either side.

    killing.py K FILE COMMAND…

The line is passed on before the kill when the client wrote it, not when the server did; FILE makes
it happen once. With K = 0 messages are only counted: a line per message goes to FILE.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path


def main() -> None:
    at, file, command = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    armed = at > 0 and not file.exists()
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    assert server.stdin is not None
    assert server.stdout is not None
    lock = threading.Lock()
    seen = 0

    def passed(source: object, sink: object, ours: bool) -> None:
        nonlocal seen
        for line in source:  # type: ignore[attr-defined]
            with lock:
                seen += 1
                kill = armed and seen == at
                if not at:
                    with file.open("a") as out:
                        out.write("message\n")
                if kill:
                    file.touch()
                if ours or not kill:
                    sink.write(line)  # type: ignore[attr-defined]
                    sink.flush()  # type: ignore[attr-defined]
                if kill:
                    os.kill(server.pid, signal.SIGKILL)
                    os._exit(9)
        if ours:
            server.stdin.close()  # type: ignore[union-attr]

    threading.Thread(
        target=passed, args=(sys.stdin.buffer, server.stdin, True), daemon=True
    ).start()
    passed(server.stdout, sys.stdout.buffer, False)
    sys.exit(server.wait())


if __name__ == "__main__":
    main()
