"""The servers that tests start end with the tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
from pathlib import Path
from servers import GuardedProcess
server = GuardedProcess(["sh", "-c", "echo $$; exec sleep 600"], folder=Path(sys.argv[1]), output=Path(sys.argv[2]))
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_server_does_not_outlive_a_test_run_that_is_killed(tmp_path: Path) -> None:
    """A test run that is killed cannot stop its server: the guard does, and deletes its folder."""
    folder, output = tmp_path / "data", tmp_path / "output"
    folder.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder), str(output)],
        cwd=Path(__file__).parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"ready\n"
        while not (server := _pid(output)):
            pass
        assert _alive(server)
        program.kill()
    while folder.exists():
        pass
    assert not _alive(server)


def _pid(output: Path) -> int:
    line = output.read_text().partition("\n")[0]
    return int(line) if line.isdigit() else 0


def _alive(pid: int) -> bool:
    return (Path("/proc") / str(pid)).exists()
