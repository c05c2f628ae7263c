"""Record a golden journal: each program whole, and once killed halfway. Run by hand, once for each release.

    PYTHONPATH=tests/golden python tests/golden/record.py FOLDER [until]

With `until`, the programs of `UNTIL` are recorded. FOLDER gets `journal.sqlite` and `expected.json`;
`tests/golden/DATE` has those of the version of that day. Recorded journals are never recorded again: they prove that
later versions open, show, resume, replay and rewind what an earlier version wrote.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from programs import PROGRAMS, UNTIL, WHOLE
from reading import plain

from loopwright import run_sync
from loopwright.journal import Entry


def record(name: str, url: str, at: str) -> None:
    """Run one program; kill this process at an entry, or resume what was killed, or neither for 0."""
    kill_at = 0 if at == "resume" else int(at)
    program = (PROGRAMS | UNTIL)[name]()
    seen = 0

    def listener(entry: Entry) -> None:
        nonlocal seen
        seen += 1
        if kill_at and seen == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    run_id = f"{name}-whole" if at == "0" else f"{name}-cut"
    result = run_sync(
        program.step, program.value, journal=url, run_id=run_id, resources=program.resources,
        listeners=[listener],
    )  # fmt: skip
    print(json.dumps({"entries": seen, "result": plain(result)}))


def main(folder: Path, names: Iterable[str]) -> None:
    """Record programs in a journal of the folder."""
    url = f"sqlite:{folder / 'journal.sqlite'}"
    expected: dict[str, Any] = {}
    for name in names:
        command = [sys.executable, __file__, "--one", name, url]
        whole = subprocess.run([*command, "0"], capture_output=True, text=True, check=False)
        assert whole.returncode == 0, whole.stderr
        told = json.loads(whole.stdout)
        expected[name] = {"whole": told["result"]}
        if name in WHOLE:
            continue
        cut = subprocess.run(
            [*command, str(told["entries"] // 2)], capture_output=True, check=False
        )
        assert cut.returncode == -signal.SIGKILL, cut.stderr
        with tempfile.TemporaryDirectory() as copy:  # what the recording version makes of it
            for file in folder.glob("journal.sqlite*"):
                shutil.copy(file, copy)
            again = subprocess.run(
                [*command[:4], f"sqlite:{copy}/journal.sqlite", "resume"],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
        assert again.returncode == 0, again.stderr
        expected[name]["cut"] = json.loads(again.stdout)["result"]
    connection = sqlite3.connect(folder / "journal.sqlite")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    (folder / "expected.json").write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "--one":
        record(sys.argv[2], sys.argv[3], sys.argv[4])
    else:
        main(Path(sys.argv[1]), UNTIL if "until" in sys.argv else PROGRAMS)
