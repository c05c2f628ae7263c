"""The real servers of npm, by stdio and by HTTP: they work, and their deaths are told at once."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from server_steps import HERE, NPM, call

from loopwright import Status
from loopwright.tools import mcp_server

EVERYTHING = str(NPM / "mcp-server-everything")
FILES = str(NPM / "mcp-server-filesystem")
SUM = ("get-sum", {"a": 2, "b": 3})


@pytest.fixture(autouse=True, scope="module")
def installed() -> None:
    """Say loudly that the servers are missing; where there is a CI that is a failure."""
    if Path(EVERYTHING).exists() and Path(FILES).exists():
        return
    what = "the npm servers are missing: run `make npm` (needs node 20 and npm)"
    if os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(what)


def test_the_everything_server_works() -> None:
    """Texts, sums and images: binary content is described, not kept."""
    server = mcp_server("all", [EVERYTHING])
    result = call(server, ("echo", {"message": "hi"}), SUM, ("get-tiny-image", {}))
    echo, added, image = (one["output"] for one in result.output)
    assert (echo, added) == ("Echo: hi", "The sum of 2 and 3 is 5.")
    assert image[1].keys() == {"type", "mimeType", "bytes", "sha256"}


def test_the_filesystem_server_works_inside_its_folder_only(tmp_path: Path) -> None:
    """It writes, reads and lists inside its folder; outside is an error as data."""
    server = mcp_server("files", [FILES, str(tmp_path)])
    note = str(tmp_path / "note.txt")
    result = call(
        server,
        ("write_file", {"path": note, "content": "one\ntwo"}),
        ("read_text_file", {"path": note}),
        ("list_directory", {"path": str(tmp_path)}),
        ("read_text_file", {"path": "/etc/passwd"}),
        ("read_text_file", {"path": 3}),
    )
    assert [one.get("output") for one in result.output[1:3]] == ["one\ntwo", "[FILE] note.txt"]
    assert Path(note).read_text() == "one\ntwo"
    kinds = [one["error"]["kind"] for one in result.output[3:]]
    assert kinds == ["tool_error", "invalid_arguments"]


def messages(tmp_path: Path) -> int:
    """Return how many messages a session of two calls has, in both directions."""
    count = tmp_path / "messages"
    killer = [sys.executable, "-I", str(HERE / "killing.py"), "0", str(count), EVERYTHING]
    assert errors_of(killer) == ["", ""]
    return len(count.read_text().splitlines())


def errors_of(command: list[str]) -> list[str]:
    result = call(mcp_server("all", command), ("echo", {"message": "x"}), SUM)
    assert result.status is Status.SATISFIED, result.detail
    return [one["error"]["kind"] if "error" in one else "" for one in result.output]


@pytest.mark.slow
def test_killed_at_each_message_of_a_session_no_call_hangs(tmp_path: Path) -> None:
    """With SIGKILL at each message of either side: a call in flight fails as server_died, any other
    is answered by a server that was started again."""
    count = messages(tmp_path)
    assert count >= 8  # initialize and its answer, initialized, a list and two calls with answers
    died = 0
    for at in range(1, count + 1):
        killer = [sys.executable, "-I", str(HERE / "killing.py"), str(at), str(tmp_path / str(at))]
        kinds = errors_of([*killer, EVERYTHING])
        assert set(kinds) <= {"", "server_died"}
        assert kinds.count("server_died") <= 1
        died += kinds.count("server_died")
    assert died >= 2


@contextlib.contextmanager
def listening() -> Iterator[tuple[str, int]]:
    """Run the everything server on a free port; give its address and its process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        [EVERYTHING, "streamableHttp"],
        env={**os.environ, "PORT": str(port)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert server.stderr is not None
    try:
        for line in server.stderr:
            if b"listening" in line:
                break
        yield f"http://127.0.0.1:{port}/mcp", server.pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()
        server.stderr.close()


def test_a_server_over_http_works_and_its_death_is_told() -> None:
    """The same tools over streamable HTTP; killed in the middle of a call it is lost at once."""
    with listening() as (url, pid):
        server = mcp_server("all", url=url)
        result = call(server, ("echo", {"message": "hi"}), SUM)
        assert [one["output"] for one in result.output] == ["Echo: hi", "The sum of 2 and 3 is 5."]
        long = ("trigger-long-running-operation", {"duration": 30, "steps": 30})
        watcher = subprocess.Popen(["sh", "-c", f"sleep 1; kill -9 {pid}"])
        began = time.monotonic()
        result = call(server, long, SUM)
        assert time.monotonic() - began < 25  # the operation itself takes 30 s
        watcher.wait()
    assert [one["error"]["kind"] for one in result.output] == ["server_died", "server_died"]


def test_an_address_where_nobody_listens_is_told() -> None:
    """A refused connection fails the step with the reason."""
    result = call(mcp_server("all", url="http://127.0.0.1:9/mcp", start_timeout=5), SUM)
    assert result.status is Status.FAILED
    assert "cannot be reached" in result.detail or "lost" in result.detail
