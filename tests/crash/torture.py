"""Kill -9 at every journal write and every charged call: `make torture`.

Prints one line per position and exits with 1 if a resume differed from the undisturbed run.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from crash.harness import POSITIONS, crash, reference
from crash.test_crash_postgres import crash_on_server
from postgres_server import ServerMissing, start_server

FAR = 7  # on PostgreSQL every seventh point, each in a database of its own


def main() -> int:
    """Run every point of every position on SQLite, and a part of them on PostgreSQL."""
    return max(on_sqlite(), on_postgres())


def on_postgres() -> int:
    """Run some points of every position on PostgreSQL."""
    try:
        server = start_server()
    except ServerMissing as missing:
        print(f"NOT TESTED: {missing}")
        return int(bool(os.environ.get("CI")))
    failures: list[str] = []
    total = 0
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        expected = reference(root / "reference", url=server.url_of(server.create_database()))
        for position in POSITIONS:
            for point in range(1, 1000, FAR):
                folder = root / f"{position}-{point}"
                found = crash_on_server(server, folder, position, point, expected)
                if found is False:
                    break
                total += 1
                failures += [str(found)] if found else []
            print(f"{position} on PostgreSQL: {total} points so far", flush=True)
    server.close()
    print("\n".join(failures))
    print(f"{total - len(failures)} passed on PostgreSQL, {len(failures)} failed")
    return 1 if failures else 0


def on_sqlite() -> int:
    """Run every point of every position on SQLite."""
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
