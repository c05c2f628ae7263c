"""2,000 runs of a real loop on two workers, one of which is killed halfway: `make demo-cluster`.

Starts a PostgreSQL server of its own, the page, and two workers. Nothing remains on the machine.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "tests"))

from postgres_server import ServerMissing, start_server  # noqa: E402

RUNS = int(os.environ.get("RUNS", "2000"))
SLOTS = 50
PATIENCE = 900.0  # seconds


def main() -> int:
    """Run the demonstration, and return 0 if all runs finished."""
    try:
        server = start_server()
    except ServerMissing as missing:
        print(f"{missing}")
        return 1
    try:
        with tempfile.TemporaryDirectory() as folder:
            return Demo(server.url_of(server.create_database()), Path(folder)).run()
    finally:
        server.close()


class Demo:
    """The processes of the demonstration."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.ledger = folder / "ledger"
        self.processes: list[subprocess.Popen[str]] = []
        self.environment = {
            **os.environ,
            "LOOPWRIGHT_JOURNAL": url,
            "LEDGER": str(self.ledger),
            "XDG_STATE_HOME": str(folder / "state"),
        }

    def run(self) -> int:
        """Submit, work, kill one worker, and wait for the end."""
        try:
            page = self._start("ui", "--no-open")
            assert page.stdout is not None
            print(f"page: {page.stdout.readline().strip()} (see Workers)", flush=True)
            workers = [self._worker(), self._worker()]
            self._submit()
            return self._watch(workers)
        finally:
            for process in self.processes:
                process.kill()
                process.wait(timeout=60)

    def _start(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "loopwright", *words]
        process = subprocess.Popen(
            command,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.processes.append(process)
        return process

    def _worker(self) -> subprocess.Popen[str]:
        return self._start("worker", "start", "--queue", f"default={SLOTS}", "--root", str(HERE))

    def _submit(self) -> None:
        inputs = self.folder / "inputs.jsonl"
        lines = (json.dumps({"number": float(number)}) for number in range(2, RUNS + 2))
        inputs.write_text("\n".join(lines))
        began = time.monotonic()
        subprocess.run(
            [
                sys.executable, "-m", "loopwright", "submit", str(HERE / "estimate.yaml"),
                "--inputs", str(inputs), "--yes",
            ],
            env=self.environment,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        print(f"submitted {RUNS:,} runs in {time.monotonic() - began:.1f} s", flush=True)

    def _watch(self, workers: list[subprocess.Popen[str]]) -> int:
        began, shown, killed, finished = time.monotonic(), 0, False, 0
        while finished < RUNS and time.monotonic() - began < PATIENCE:
            time.sleep(0.5)
            finished = self._finished()
            if not killed and finished >= RUNS / 2:
                workers[0].send_signal(signal.SIGKILL)
                killed = True
                print(f"{finished:,} runs finished: one of the two workers is killed", flush=True)
            elif finished >= shown + RUNS // 8:
                shown = finished
                print(f"{finished:,} runs finished", flush=True)
        seconds = time.monotonic() - began
        print(f"{RUNS / seconds:.0f} runs a second, two workers, one of them killed halfway")
        print(f"{finished:,} of {RUNS:,} runs finished; effects repeated: {self._repeated():,}")
        return 0 if finished == RUNS else 1

    def _finished(self) -> int:
        import psycopg

        with psycopg.connect(self.url) as db:
            query = (
                "SELECT count(*) FROM loopwright.runs WHERE status IN ('satisfied', 'exhausted')"
            )
            row = db.execute(query).fetchone()
        return int(row[0]) if row else 0

    def _repeated(self) -> int:
        lines = self.ledger.read_text().splitlines() if self.ledger.exists() else []
        return sum(times - 1 for times in Counter(lines).values())


if __name__ == "__main__":
    sys.exit(main())
