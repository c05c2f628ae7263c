"""Events by URL: who is let in, what a request may be, and that an address does one thing."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from loopwright import MemoryJournal, resume, run, wait
from loopwright.errors import ConfigurationError
from loopwright.journal import open_journal
from loopwright.journal.events import OpenWait
from loopwright.journal.signal_urls import signal_url
from loopwright.ui.web.signals import MOST, create_app, with_signals

from .conftest import Server, call, serving

BASE = "http://signals.example"


@pytest.fixture(autouse=True)
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state folder of the test, and the address of its proxy."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("LOOPWRIGHT_PUBLIC_URL", f"{BASE}/")
    monkeypatch.delenv("LOOPWRIGHT_SIGNAL_KEY", raising=False)


class Caller:
    """A program that calls the addresses of a journal, whose clock stands."""

    def __init__(self, journal: Any) -> None:
        self.now = 100.5
        app = create_app(journal, lambda: self.now)
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(app))

    async def post(self, url: str, body: str | bytes = "1") -> tuple[int, Any]:
        answer = await self.client.post(url, content=body)
        return answer.status_code, answer.json()


async def suspended(tmp_path: Path, step: Any, *run_ids: str) -> Any:
    """Return a journal with runs that wait and have left their process."""
    journal = open_journal(f"sqlite:{tmp_path}/j.db")
    for run_id in run_ids:
        await run(step, journal=journal, run_id=run_id, on_wait="leave")
    return journal


async def test_a_url_ends_the_wait_of_its_run_once(tmp_path: Path) -> None:
    """The body is the value; a second use is `repeated`; another run with the same wait does not see it."""
    step = wait("ci", event="done", key="a/b c?", timeout="1h")
    journal = await suspended(tmp_path, step, "r1", "r2")
    caller, url = Caller(journal), signal_url("r1", "done", "a/b c?")
    assert url.startswith(f"{BASE}/signal/r1/done/a%2Fb%20c%3F?token=")
    said = {"stored": True, "repeated": False, "waiting": 1}
    assert await caller.post(url, '{"n": [1, "ü"]}') == (202, said)
    assert await caller.post(url, "2") == (202, {**said, "stored": False, "repeated": True})
    result = await resume(step, "r1", journal=journal, on_wait="leave")
    assert (result.output["ended"], result.output["value"]) == ("event", {"n": [1, "ü"]})
    assert (await resume(step, "r2", journal=journal, on_wait="leave")).reason == "waiting"
    assert await caller.post(url) == (202, {"stored": False, "repeated": True, "waiting": 0})


async def test_every_other_address_is_unknown() -> None:
    """Neither the token of another run, name or key, nor a changed or missing one, stores anything."""
    journal = MemoryJournal()
    await run(wait(for_=0), journal=journal, run_id="r1")
    caller, right = Caller(journal), signal_url("r1", "done", "k")
    token = right.partition("token=")[2]
    wrong = [
        f"{BASE}/signal/r2/done/k?token={token}",
        f"{BASE}/signal/r1/other/k?token={token}",
        f"{BASE}/signal/r1/done/K?token={token}",
        f"{BASE}/signal/r1/done/k/?token={token}",
        f"{BASE}/signal/r1/done/k?token={token[:-1]}",
        f"{BASE}/signal/r1/done/k?token=%ff",
        f"{BASE}/signal/r1/done/k",
        f"{BASE}/signal/r1/done?token={token}",
        f"{BASE}/",
        signal_url("r", "done", "k"),  # the beginning of an ID
        signal_url("r3", "done", "k"),
    ]
    for url in wrong:
        assert await caller.post(url) == (404, {"error": "there is no such address"}), url
    for method in ("GET", "PUT", "DELETE"):
        answer = await caller.client.request(method, right)
        assert (answer.status_code, answer.json()) == (405, {"error": "use POST"})
    found = await journal.look_for([OpenWait("r1", "p", "done", "k")])
    assert found[1] == [None]
    assert (await caller.post(right))[0] == 202


async def test_a_value_that_is_refused_leaves_the_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not JSON, too large, a key, or not of the schema of the open wait: a sentence says why, and the URL still counts."""
    monkeypatch.setenv("AN_API_KEY", "sk-very-secret")
    schema = {"type": "object", "required": ["conclusion"]}
    step = wait("ci", event="done", schema=schema, timeout="1h")
    caller, url = Caller(await suspended(tmp_path, step, "r1")), signal_url("r1", "done")
    for body, status, said in [
        ("", 422, "the body is not a JSON value"),
        ("{", 422, "the body is not a JSON value"),
        (b"\xff", 422, "the body is not a JSON value"),
        ("[" * 200_000, 422, "the body is not a JSON value"),
        ('{"a": 1, "a": 2}', 422, "duplicate key"),
        ("NaN", 422, "NaN"),
        ('"sk-very-secret"', 422, "it contains the value of AN_API_KEY"),
        (b" " * 262_145, 413, "more than 262,144 bytes"),
        ('{"x": 1}', 422, "event done: its value does not fit"),
    ]:
        caller.now += 1
        found, answer = await caller.post(url, body)
        assert (found, said in answer["error"]) == (status, True), answer
    assert (await caller.post(url, '{"conclusion": "ok"}'))[1]["stored"]


async def test_many_requests_with_one_token_are_refused() -> None:
    """After ten in a second, until the next one; other tokens are not touched."""
    journal = MemoryJournal()
    await run(wait(for_=0), journal=journal, run_id="r1")
    caller = Caller(journal)
    first, second = signal_url("r1", "done", "1"), signal_url("r1", "done", "2")
    assert [(await caller.post(first))[0] for _ in range(MOST + 1)] == [*[202] * MOST, 429]
    assert (await caller.post(second))[0] == 202
    caller.now += 1
    assert (await caller.post(first))[0] == 202


async def test_the_secret_is_kept_for_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file is readable by the user only, and the variable replaces it; a short one is refused."""
    url = signal_url("r1", "done")
    [file] = (tmp_path / "state").rglob("signals")
    assert file.stat().st_mode & 0o777 == 0o600
    assert (len(file.read_text()), url) == (43, signal_url("r1", "done"))
    monkeypatch.setenv("LOOPWRIGHT_SIGNAL_KEY", "0" * 64)
    assert signal_url("r1", "done") != url
    monkeypatch.setenv("LOOPWRIGHT_SIGNAL_KEY", "0" * 31)
    with pytest.raises(ConfigurationError, match="LOOPWRIGHT_SIGNAL_KEY: it has 31 characters"):
        signal_url("r1", "done")


async def test_only_the_paths_of_signals_pass_the_guard() -> None:
    """Beside another application, each has its own paths."""

    async def page(scope: Any, receive: Any, send: Any) -> None:
        await httpx_answer(send, scope["path"].encode())

    app = with_signals(page, create_app(MemoryJournal()))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=BASE) as client:
        assert (await client.get("/runs")).text == "/runs"
        assert (await client.get("/signals")).text == "/signals"
        assert (await client.post("/signal/r/n/k")).json() == {"error": "there is no such address"}


async def httpx_answer(send: Any, body: bytes) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


WAITS = """
schema: loopwright/1
name: w
steps:
  - {name: ci, wait: {event: done, timeout: 2h, schema: {type: [object, string]}}}
  - {name: pause, wait: {for: 1h, default: late}}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The page of a folder with two runs that wait, and the receiver of events beside it."""
    folder = tmp_path_factory.mktemp("waits")
    (folder / "w.yaml").write_text(WAITS)
    for run_id in ("by-url", "by-page"):
        words = ("run", "w.yaml", "--run-id", run_id, "--on-wait", "leave")
        assert call(folder, *words).returncode == 4
    with serving(folder, "--signals", "0") as made:
        yield made


def test_the_server_beside_the_page(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """`ui --signals` receives events at a port of its own, where there is nothing of the page."""
    said = (server.folder / "ui.log").read_text()
    [base] = re.findall(r"events by URL: (http://127\.0\.0\.1:\d+)\n", said)
    monkeypatch.setenv("LOOPWRIGHT_PUBLIC_URL", base)
    monkeypatch.setenv("XDG_STATE_HOME", str(server.folder / "state"))
    with urllib.request.urlopen(signal_url("by-url", "done"), b'"ok"', timeout=60) as answer:
        assert (answer.status, b'"waiting":1' in answer.read()) == (202, True)
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{base}/?token={server.token}", timeout=60)
    assert server.ask("/signal/by-url/done/by-url", 1)[0] == 404


def test_the_page_ends_waits(server: Server) -> None:
    """Each open wait has a form; a wrong value is refused with the reason, and the run goes on to its next wait."""
    place = "/runs/by-page"

    def shown() -> str:
        status, text = server.ask(place)
        assert status == 200
        return text

    def waits(text: str) -> list[str]:
        return re.findall(r"<h2>(w/\S+) waits for", text)

    event = {"name": "done", "key": "by-page", "go": True}
    page = shown()
    assert waits(page) == ["w/ci"]
    assert 'name="key" value="by-page"' in page
    assert "Schema of the value" in page
    assert re.search(r"since 20\d\d-\S+ \d\d:\d\d \(.*just now.*\), until 20\d\d-", page)
    for value, why in [("{", "value: it is not JSON"), ("7", "its value does not fit")]:
        status, said = server.ask(f"{place}/signal", {**event, "value": value})
        assert (status, why in said) == (400, True)
    value = json.dumps("long " * 20_000)  # the page reads such an entry without its value
    assert server.ask(f"{place}/signal", {**event, "value": value})[0] == 200
    while waits(page := shown()) != ["w/pause"] or "suspended" not in page:
        pass  # its process is at work
    assert "Send event" not in page
    for _ in range(2):
        status, said = server.ask(f"{place}/stop-wait", {"path": "w/ci", "go": True})
        assert (status, "this wait has ended" in said) == (400, True)
    assert server.ask(f"{place}/stop-wait", {"path": "w/pause", "go": True})[0] == 200
    while 'data-status="satisfied"' not in (page := shown()):
        pass
    assert waits(page) == []
