"""Heavy output of agents: bounded memory, a bounded journal, no hang and a clear end: part of `make torture`.

python -m coding.agents.heavy_streams [NAME …]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

END = r"""print('{"type": "result", "subtype": "success", "result": "done", "usage": {"output_tokens": 1}}', flush=True)"""
EVENT = r"""'{"type": "assistant", "message": {"content": [{"type": "text", "text": "hi"}]}}\n'"""
OUT = "import sys\nout = sys.stdout.buffer\n"
TOO_LARGE = "output_too_large"  # more than 256 MiB
# The code of the program, and how the call ends: "" for a result, else the kind of the failure.
STREAMS = {
    "nothing": ("", "unknown_outcome"),
    "a line of 1 GB": (f"{OUT}for _ in range(1000): out.write(b'x' * 1_000_000)\nout.write(b'\\n')\n{END}", TOO_LARGE),
    "1 GB without an end of line": (f"{OUT}for _ in range(1000): out.write(b'x' * 1_000_000)", TOO_LARGE),
    "a JSON line of 1 GB": (
        OUT + "out.write(b'{\"type\": \"assistant\", \"text\": \"')\nfor _ in range(1000): out.write(b'x' * 1_000_000)\n"
        f"out.write(b'\"}}\\n')\nout.flush()\n{END}",
        TOO_LARGE,
    ),
    "a line of 200 MB": (f"{OUT}for _ in range(200): out.write(b'x' * 1_000_000)\nout.write(b'\\n')\nout.flush()\n{END}", ""),
    "1,000,000 events": (f"{OUT}for _ in range(1000): out.write({EVENT}.encode() * 1000)\nout.flush()\n{END}", ""),
    "invalid UTF-8": (f"{OUT}for _ in range(100): out.write(b'\\xff\\xfe\\xc3\\n' * 30_000)\nout.flush()\n{END}", ""),
    "NUL bytes": (f"{OUT}for _ in range(100): out.write(b'\\0' * 100_000 + b'\\n')\nout.flush()\n{END}", ""),
    "half of the last event": (f"{OUT}out.write({EVENT}.encode())\nout.write(b'{{\"type\": \"result\", \"subty')", "unknown_outcome"),
    "100,000 lines on standard error": (f"import sys\nsys.stderr.write('a warning\\n' * 100_000)\n{END}", ""),
    "a line of 1 GB on standard error": (
        f"import sys\nfor _ in range(1000): sys.stderr.write('x' * 1_000_000)\n{END}",
        TOO_LARGE,
    ),
    "output after it closed its output": (
        f"import os, time\n{END}\nos.close(1)\ntime.sleep(1)\nfor _ in range(1000): os.write(2, b'x' * 1000)",
        "",
    ),
    "output after its end": (
        f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'while True: print(1)'])\n{END}",
        "",
    ),
    "endless output": (f"{OUT}while True: out.write(b'x' * 1_000_000 + b'\\n')", TOO_LARGE),
    "endless standard error": ("import sys\nwhile True: sys.stderr.write('x' * 1_000_000)", TOO_LARGE),
}  # fmt: skip
MEASURED = """
import resource, sys, time
from loopwright import agent, run_sync
from loopwright.coding.agents import Manifest
made = Manifest(program=[sys.executable, "-c", sys.argv[1]], events="claude", end="required", name="mine")
step = agent(made, "x", workspace="here", cwd=sys.argv[2], timeout=240)
began = time.monotonic()
result = run_sync(step, journal=f"sqlite:{sys.argv[2]}/runs.db")
kind = result.error.kind if result.error else ""
print(kind, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, f"{time.monotonic() - began:.1f}", sep=";")
"""
BOUND = 64  # MB above a call that prints nothing
STORED = 4  # MB of the journal and the stored stream


def measured(code: str) -> tuple[str, int, float, float]:
    """Return how a call ended, its memory in MB, its seconds and the MB that it stored."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", MEASURED, code, folder]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=300, check=True)
        kind, size, seconds = done.stdout.strip().split(";")
        stored = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
    return kind, int(size), float(seconds), stored / 2**20


def main(words: list[str]) -> int:
    """Measure the named streams, or all; print a line for each."""
    rest = measured(STREAMS["nothing"][0])[1]
    failed = 0
    for name, (code, expected) in STREAMS.items():
        if words and name not in words:
            continue
        kind, size, seconds, stored = measured(code)
        wrong = [f"it ended with {kind!r} and not {expected!r}"] if kind != expected else []
        wrong += [f"more than {BOUND} MB"] if size - rest > BOUND else []
        wrong += [f"{stored:.1f} MB stored"] if stored > STORED else []
        failed += bool(wrong)
        print(f"{name}: {size - rest} MB, {seconds} s {'; '.join(wrong)}".rstrip(), flush=True)
    print(f"{len(STREAMS)} streams, {failed} failed")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
