"""Waits for commands and URLs: when they end, how they fail, and who may end them."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from loopwright import MemoryJournal, Reason, Status, Workflow, resume, run, shell, wait
from loopwright.engine.waiting import stop_waiting
from loopwright.errors import ConfigurationError
from loopwright.journal import open_journal
from loopwright.tools import UrlProbe

QUICK = {"first": 0.02, "most": 0.05}


@contextlib.contextmanager
def served(answer: Callable[[int, str], tuple[int, dict[str, str], bytes]]) -> Iterator[str]:
    """Serve answers, by the number of the request and its path, and yield the URL of the server."""
    count = 0

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            nonlocal count
            count += 1
            status, headers, body = answer(count, self.path)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


async def test_a_command_is_run_until_it_succeeds(tmp_path: Path) -> None:
    """Its exit code and output are the value; no effect is counted, and a replay runs it no more."""
    counter = shell('echo "$(cat n 2>/dev/null)x" > n; test "$(cat n)" = xxx', cwd=tmp_path)
    journal = MemoryJournal()
    result = await run(wait("built", command=counter, every=QUICK), journal=journal, run_id="r")
    assert (result.output["ended"], result.output["value"]["exit"]) == ("command", 0)
    assert (tmp_path / "n").read_text() == "xxx\n"
    assert not [e for e in await journal.entries("r") if e.kind in ("started", "finished")]
    assert (
        await run(wait("built", command=counter, every=QUICK), journal=journal, run_id="r")
    ).output
    assert (tmp_path / "n").read_text() == "xxx\n"


async def test_a_code_in_failed_ends_the_wait_as_failed() -> None:
    """It is another outcome than the end of the time limit, and than a command that cannot be started."""
    ended = []
    for command, limit in (("echo broken; exit 2", 5), ("exit 1", 0.1)):
        step = wait("w", command=shell(command), failed=[2], every=QUICK, timeout=limit)
        ended.append((await run(step, journal=MemoryJournal())).error)
    missing = wait("w", command=shell(["./no-such-program"]), every=QUICK)
    ended.append((await run(missing, journal=MemoryJournal())).error)
    assert [one.kind for one in ended] == ["wait_failed", "wait_timeout", "cannot_start"]
    assert "ended with 2: broken" in ended[0].message
    assert 'its last look: {"exit": 1' in ended[1].message


async def test_a_hanging_command_is_ended_and_run_again(tmp_path: Path) -> None:
    """Its own time limit means that it is not yet true."""
    command = shell("test -e marker || { touch marker; sleep 60; }", cwd=tmp_path, timeout=0.2)
    result = await run(wait("w", command=command, every=QUICK), journal=MemoryJournal())
    assert result.output["ended"] == "command"


async def test_a_url_is_asked_until_it_answers_so() -> None:
    """Its status and pattern decide; the body is the value."""

    def answer(count: int, path: str) -> tuple[int, dict[str, str], bytes]:
        del path
        return (503, {}, b"") if count < 3 else (200, {}, b"build passed")

    with served(answer) as url:
        step = wait("w", url=UrlProbe(f"{url}/b", pattern="pass"), every=QUICK)
        result = await run(step, journal=MemoryJournal())
    assert result.output["value"] == {"status": 200, "output": "build passed"}


async def test_a_url_that_changed() -> None:
    """It is compared with the answer at the beginning of the wait."""

    def answer(count: int, path: str) -> tuple[int, dict[str, str], bytes]:
        del path
        return 200, {}, b"v1" if count < 4 else b"v2"

    with served(answer) as url:
        step = wait("w", url=UrlProbe(url, state="changed"), every=QUICK)
        result = await run(step, journal=MemoryJournal())
    assert result.output["value"]["output"] == "v2"


async def test_a_redirect_to_another_host_is_not_followed() -> None:
    """Nobody agreed to that host; one to the same host is followed."""
    with served(lambda count, path: (200, {}, b"secret")) as other:

        def answer(count: int, path: str) -> tuple[int, dict[str, str], bytes]:
            del count
            if path == "/here":
                return 200, {}, b"here"
            return 302, {"Location": other if path == "/away" else "/here"}, b""

        with served(answer) as url:
            bodies = []
            for path in ("/away", "/same"):
                step = wait("w", url=UrlProbe(url + path), every=QUICK, timeout=0.2, default=None)
                bodies.append((await run(step, journal=MemoryJournal())).output["value"])
    assert bodies == [None, {"status": 200, "output": "here"}]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"url": "ftp://x/"}, "is not a URL with http or https"),
        ({"url": "https://me:secret@x/"}, "with credentials is not allowed: x"),
        ({"url": "https://x/", "pattern": "("}, "is not a regular expression"),
        ({"url": "https://x/", "status": 9}, "is not a status"),
        ({"url": "https://x/", "state": "gone"}, "is not there or changed"),
    ],
)
def test_wrong_urls_are_refused_when_they_are_made(options: dict[str, Any], said: str) -> None:
    """Each problem says what is expected, and repeats no password."""
    with pytest.raises(ConfigurationError) as error:
        UrlProbe(**options)
    assert said in str(error.value)
    assert "secret" not in str(error.value)


async def test_a_run_that_left_looks_again_and_records_nothing_for_it(tmp_path: Path) -> None:
    """A resume looks once; as long as it is not true the journal does not grow."""
    done = tmp_path / "done"
    flow = Workflow("flow", {"w": wait("w", command=shell(["test", "-e", str(done)]))})
    journal = open_journal(f"sqlite:{tmp_path}/j.db")
    result = await run(flow, journal=journal, run_id="r", on_wait="leave")
    assert (result.status, result.reason) == (Status.SUSPENDED, Reason.WAITING)
    [row] = await journal.waits("r")
    assert row.due < result.request["due"]  # somebody must look before the time limit
    count = len(await journal.entries("r"))
    for _ in range(3):
        await resume(flow, "r", journal=journal, on_wait="leave")
    assert len(await journal.entries("r")) == count
    done.touch()
    assert (await resume(flow, "r", journal=journal, on_wait="leave")).output["ended"] == "command"


async def test_a_wait_in_its_process_is_told_and_can_be_continued_by_others() -> None:
    """Listeners hear of it while it waits; after a kill, whoever continues runs looks before the time limit."""
    journal, told = MemoryJournal(), []
    members = {"a": {"event": "go"}, "b": {"command": shell("false")}}
    step = wait("w", first_of=members, timeout="1h")
    task = asyncio.ensure_future(run(step, journal=journal, run_id="r", listeners=[told.append]))
    while not (told and await journal.waits("r")):
        await asyncio.sleep(0.01)
    row = (await journal.waits("r"))[0]
    assert (told[0].kind, row.due < told[0].value["due"]) == ("waiting", True)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("form", [{"for_": "1h"}, {"event": "never"}])
async def test_a_person_can_end_a_wait(form: dict[str, Any]) -> None:
    """It ends as its time limit does; a rewind waits again."""
    journal, step = MemoryJournal(), wait("w", **form, default="none came")
    for _ in range(2):
        task = asyncio.ensure_future(run(step, journal=journal, run_id="r"))
        while not await journal.waits("r"):
            await asyncio.sleep(0.01)
        assert (await stop_waiting(journal, "r", "w", who="ann")).waiting == 1
        result = await asyncio.wait_for(task, 10)
        assert (result.output["ended"], result.output["value"]) == ("timeout", "none came")
        await journal.rewind("r", "w")
