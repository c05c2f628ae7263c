"""MCP servers that die, hang, change and flood: every call ends, with an error that says why."""

from __future__ import annotations

import asyncio
import gzip
import json
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from server_steps import HERE, answer, call, lives, misbehaving

from loopwright import MemoryJournal, Reason, Status
from loopwright.errors import ConfigurationError
from loopwright.tools import mcp_server
from loopwright.ui.trace import trace_of


def errors(result: Any) -> list[str]:
    return [one["error"]["kind"] if "error" in one else "" for one in result.output]


def lines(file: Path, word: str) -> int:
    return sum(line.startswith(word) for line in file.read_text().splitlines())


def test_its_tools_are_called_and_their_failures_are_data() -> None:
    """Texts come back as they are, a tool's own failure as tool_error, and noise disturbs nothing."""
    result = call(misbehaving("--noise"), ("echo", {"text": "hé\nllo"}), ("fail", {}))
    assert result.output[0]["output"] == "hé\nllo"
    assert result.output[1]["error"] == {"kind": "tool_error", "message": "it did not work"}


@pytest.mark.parametrize("at", range(1, 7))
def test_a_server_killed_at_any_message_leaves_no_call_hanging(at: int, tmp_path: Path) -> None:
    """Whichever message it dies at, a call that was made fails within a second as server_died, what
    comes later starts it again, and nothing is called twice."""
    count = tmp_path / "count"
    server = misbehaving("--die-at", str(at), "--once", str(tmp_path / "o"), "--count", str(count))
    calls = [("echo", {"text": str(n)}) for n in range(3)]
    began = time.monotonic()
    result = call(server, *calls)
    assert time.monotonic() - began < 20  # a hung call would last its 60 s
    kinds = errors(result)
    assert kinds == ["server_died" if n == at - 4 else "" for n in range(3)]
    assert lines(count, "start") == (1 if at == 6 else 2)
    assert lines(count, "call") == kinds.count("")
    if at <= 3:  # initialize, initialized, tools/list: it is started again for its list
        return
    message = result.output[at - 4]["error"]["message"]
    assert (
        message
        == "the server odd exited with 7; its last output: it was told to die (during call of echo)"
    )


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--hang", "initialize"], "no answer to initialize within 0.5 s"),
        (["--hang", "tools/list"], "no answer to list_tools within 0.5 s"),
    ],
)
def test_a_server_that_hangs_at_its_start_is_given_up(options: list[str], says: str) -> None:
    """The handshake and the list of tools have deadlines of their own."""
    result = call(misbehaving(*options, start_timeout=0.5), ("echo", {}))
    assert result.status is Status.FAILED
    assert says in result.detail


def test_a_call_that_hangs_ends_at_its_deadline_and_the_next_one_is_answered() -> None:
    """A tool's timeout is an error as data; the server goes on."""
    server = misbehaving("--hang", "nothing", timeout=0.5)
    result = call(server, ("slow", {"seconds": 1.0}), ("fail", {}), ("echo", {"text": "x"}))
    assert errors(result)[0] == "timeout"


def test_a_server_that_does_not_read_holds_nobody() -> None:
    """A call whose request cannot be written ends at its deadline all the same."""
    server = misbehaving("--deaf", timeout=0.5)
    result = call(server, ("echo", {"text": "y" * 2_000_000}))
    assert errors(result) == ["timeout"]


@pytest.mark.parametrize(
    ("program", "says"),
    [
        (["no-such-program-here"], "there is no such program on PATH"),
        ([sys.executable, "-c", "raise SystemExit('bad option')"], "its last output: bad option"),
        (["cat"], "initialize"),
    ],
)
def test_what_cannot_be_started_says_why(program: list[str], says: str) -> None:
    """A missing program, one that ends at once and one that is no server are told apart."""
    result = call(mcp_server("odd", program, start_timeout=2), ("echo", {}))
    assert result.status is Status.FAILED
    assert says in result.detail


def test_a_server_is_started_again_three_times_in_a_run(tmp_path: Path) -> None:
    """Dying at each first call it is started four times in all, then it is gone."""
    count = tmp_path / "count"
    server = misbehaving("--die-at", "4", "--count", str(count))
    result = call(server, *[("echo", {"text": "x"})] * 6)
    assert errors(result) == ["server_died"] * 4 + ["server_gone"] * 2
    assert lines(count, "start") == 4


def test_a_server_whose_tools_changed_on_restart_is_refused(tmp_path: Path) -> None:
    """The list of tools is pinned: after a restart with others nothing is called any more."""
    count = tmp_path / "count"
    server = misbehaving(
        "--die-at", "5", "--later", "echo,flood,evil", "--count", str(count)
    )  # fmt: skip
    result = call(server, *[("echo", {"text": "x"})] * 4)
    assert errors(result) == ["", "server_died", "tools_changed", "tools_changed"]
    assert "evil is new" in result.output[2]["error"]["message"]
    assert "fail is gone" in result.output[2]["error"]["message"]
    assert lines(count, "call") == 1


@pytest.mark.parametrize("size", [1_000, 2_000_000, 50_000_000, 70_000_000])
def test_a_result_of_any_size_is_bounded(size: int) -> None:
    """Up to 64 MiB is read and at most 1 MiB kept, with a marker; more ends the server."""
    result = call(misbehaving(), ("flood", {"size": size}))
    call_ = result.output[0]
    if size > 64 * 1024 * 1024:
        assert call_["error"]["kind"] == "output_too_large"
        return
    assert len(call_["output"]) <= 1024 * 1024
    assert ("bytes omitted ...]" in call_["output"]) == (size > 1024 * 1024)
    assert call_.get("omitted", {"bytes": size})["bytes"] == size


def test_its_environment_has_no_key_that_was_not_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of our variables a server sees HOME, PATH and the like, and those that were passed on."""
    monkeypatch.setenv("SECRET_KEY", "s1")
    monkeypatch.setenv("GIVEN_KEY", "s2")
    server = misbehaving(env={"MODE": "test"}, pass_env=["GIVEN_KEY"])
    seen = json.loads(call(server, ("env", {})).output[0]["output"])
    assert (seen["MODE"], seen["GIVEN_KEY"]) == ("test", "s2")
    assert "SECRET_KEY" not in seen


def test_nothing_that_it_started_is_left_after_the_run(tmp_path: Path) -> None:
    """The server's whole process group ends with the run, also when it died before."""
    for options in ([], ["--die-at", "4"]):
        held = tmp_path / "held"
        call(misbehaving("--grandchild", str(held), *options), ("echo", {"text": "x"}))
        assert not lives(int(held.read_text()))


def test_a_server_does_not_outlive_a_run_that_is_killed(tmp_path: Path) -> None:
    """After kill -9 of the run's process a server that goes on working is ended all the same."""
    held, count = tmp_path / "held", tmp_path / "count"
    code = (
        f"import sys; sys.path.insert(0, {str(HERE)!r})\n"
        "from server_steps import call, misbehaving\n"
        f"call(misbehaving('--grandchild', {str(held)!r}, '--count', {str(count)!r}), "
        "('slow', {'seconds': 50}))"
    )
    running = subprocess.Popen([sys.executable, "-c", code])
    wait_for(lambda: count.exists() and lines(count, "call") == 1)
    running.kill()
    running.wait()
    wait_for(lambda: not lives(int(held.read_text())))


def wait_for(what: Callable[[], bool]) -> None:
    """Wait until something holds; fail if it does not within half a minute."""
    until = time.monotonic() + 30
    while not what():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_only_the_tools_that_are_allowed_exist() -> None:
    """`only` leaves out the rest; a name that the server lacks is refused with the nearest that it has."""
    result = call(misbehaving(only=["echo"]), ("echo", {"text": "x"}))
    assert result.output[0]["output"] == "x"
    with pytest.raises(ConfigurationError, match="it has no tool 'ech'; did you mean 'echo'"):
        call(misbehaving(approve=["ech"]), ("echo", {}))


def test_a_call_of_a_tool_with_approve_waits_for_a_person() -> None:
    """`approve` by name holds for that tool only."""
    result = call(misbehaving(approve=["fail"]), ("echo", {"text": "x"}), ("fail", {}))
    assert (result.status, result.reason) == (Status.SUSPENDED, Reason.APPROVAL)
    assert result.request is not None
    assert result.request["tool"] == "fail"


def test_a_replayed_run_starts_no_server_and_a_resumed_one_holds_it_to_its_list(
    tmp_path: Path,
) -> None:
    """What is on record is not asked again; a server that lists other tools than those on record is
    refused after a restart of the run too. The trace has the calls, and not the list."""
    count = tmp_path / "count"
    journal = MemoryJournal()
    server = misbehaving("--count", str(count), "--later", "echo,evil", approve=["flood"])
    calls = [("echo", {"text": "x"}), ("flood", {"size": 1}), ("echo", {"text": "y"})]
    for _ in range(2):
        result = call(server, *calls, journal=journal)
        assert (result.status, lines(count, "start")) == (Status.SUSPENDED, 1)
    answer(journal, "calls/call-2/approval", {"approve": True})
    for _ in range(2):
        result = call(server, *calls, journal=journal)
        assert errors(result) == ["", "tools_changed", "tools_changed"]
        assert (lines(count, "start"), lines(count, "call")) == (2, 1)
    entries = asyncio.run(journal.entries(result.run_id))
    assert any(entry.path.startswith("servers/") for entry in entries)
    assert [node.path for node in trace_of(entries)] == ["calls"]


def test_declaring_a_server_loads_no_client_library() -> None:
    """`import loopwright.tools` and a declaration do not import the MCP library or anyio."""
    code = (
        "import sys; from loopwright.tools import mcp_server; mcp_server('x', ['y'])\n"
        "assert not {'mcp', 'mcp_types', 'anyio', 'httpx2', 'pydantic_ai'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the library is missing, what is to be installed is said."""
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.delitem(sys.modules, "loopwright.tools.mcp_client", raising=False)
    with pytest.raises(ConfigurationError, match=r"pip install 'loopwright\[mcp\]'"):
        call(misbehaving(), ("echo", {}))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"name": "a b", "command": ["x"]}, "'a b' is not a valid name"),
        ({"name": "a"}, "specify either command, a list of words, or url"),
        ({"name": "a", "command": ["x"], "url": "http://x"}, "specify either command"),
        ({"name": "a", "url": "ftp://x"}, "is not an http or https URL"),
        ({"name": "a", "command": "x y"}, "is a text. Use a list of words"),
        ({"name": "a", "command": ["x"], "timeout": 0}, "timeout"),
    ],
)
def test_a_wrong_declaration_is_refused(given: dict[str, Any], says: str) -> None:
    """Each names the field and what is expected."""
    with pytest.raises(ConfigurationError, match=says):
        mcp_server(**given)


@pytest.mark.parametrize("encoding", ["gzip, gzip", "zstd", ""])
def test_a_server_over_http_cannot_send_more_than_the_limit(encoding: str) -> None:
    """A compressed response is refused before it is expanded, and a plain one is read up to 64 MiB."""
    # 64 KiB that become 64 MiB, and compressed again a few bytes.
    once = gzip.compress(b" " * (1 << 26), 1)
    body = {"gzip, gzip": gzip.compress(once)}.get(encoding, b"{")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            if encoding:
                self.send_header("Content-Encoding", encoding)
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(body)
                for _ in range(0 if encoding else 70):
                    self.wfile.write(b" " * (1 << 20))

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.server_address[1]}/mcp"
        from loopwright.tools import mcp_client  # noqa: F401 - its import needs more memory than the response

        tracemalloc.start()
        result = call(mcp_server("far", url=url, start_timeout=20), ("echo", {}))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        server.shutdown()
        thread.join()
    error = result.output[0]["error"] if result.output else {"kind": "", "message": result.detail}
    assert ("compressed its response" if encoding else "a message of more than") in error["message"]
    assert peak < (200 << 20 if not encoding else 40 << 20)
