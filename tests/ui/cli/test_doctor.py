"""`doctor` tries providers with the keys in the environment."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from loopwright.journal import RunInfo
from loopwright.journal.sqlite import SqliteJournal
from loopwright.models import PROVIDERS

from .conftest import Answer, Project

KEY = "sk-of-the-doctor"


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for provider in PROVIDERS.values():
        for name in (*provider.keys, *provider.places):
            monkeypatch.delenv(name, raising=False)


@contextmanager
def server(status: int) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Serve one status; yield the URL and the paths and keys of the requests."""
    requests: list[tuple[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append((self.path, self.headers.get("Authorization", "")))
            self.send_response(status)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.server_address[1]}/v1", requests
        listening.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("status", "state", "code"),
    [
        (200, "ready", 0),
        (404, "ready", 0),
        (429, "ready", 0),
        (401, "refused", 1),
        (500, "error", 1),
    ],
)
def test_the_answer_of_a_server_is_its_state(
    status: int, state: str, code: int, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One request for the models, with the key; a refused key and a broken server are failures."""
    monkeypatch.setenv("MY_KEY", KEY)
    with server(status) as (url, requests):
        answer = project.run("doctor", "--model-url", url, "--api-key-env", "MY_KEY", "--json")
    (report,) = json.loads(answer.out)["providers"]
    assert (report["state"], answer.code) == (state, code)
    assert requests == [("/v1/models", f"Bearer {KEY}")]
    assert KEY not in answer.out + answer.err


def test_a_missing_key_and_a_server_that_is_off_say_what_to_do(project: Project) -> None:
    """Named, both are failures with a remedy."""
    answer = project.run("doctor", "openai")
    assert answer.code == 1
    assert "set OPENAI_API_KEY" in answer.out
    with socket.socket() as taken:  # bound and not listening: connections are refused
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        answer = project.run("doctor", "ollama", "--model-url", url)
    assert answer.code == 1
    assert f"no server answers at {url}" in answer.out


def test_an_unknown_provider_is_refused(project: Project) -> None:
    """The valid names are in the message, the nearest first, and the exit code is that of a wrong command line."""
    answer = project.run("doctor", "opena")
    assert answer.code == 2
    assert "'opena' is unknown; use one of: openai, openrouter, " in answer.err
    # No guess: half of the letters are alike by chance.
    assert "did you mean" not in project.run("doctor", "nope").err


def test_a_machine_without_any_provider_is_no_success(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a key and without a local server nothing can be used, and the exit code says so."""
    for provider in PROVIDERS.values():
        for name in (*provider.keys, *provider.places):
            monkeypatch.delenv(name, raising=False)
    answer = project.run("doctor", "--json")
    states = {report["state"] for report in answer.json["providers"]}
    # A server of this machine may run.
    assert answer.code == (0 if "ready" in states else 1)


def test_every_part_of_a_machine_has_a_line(project: Project, tmp_path: Path) -> None:
    """Byte code, extras, tools, sandbox, agents, journal and providers are there, and an absent one says what to do."""
    shown = project.run("doctor", "--json").json
    parts = {one["part"] for one in shown["findings"]}
    assert parts == {"byte code", "extra", "tool", "sandbox", "journal", "agent", "provider"}
    assert [one for one in shown["findings"] if one["state"] != "ready" and not one["detail"]] == []
    journal = next(one for one in shown["findings"] if one["part"] == "journal")
    assert (journal["state"], "there is no journal" in journal["detail"]) == ("absent", True)


def test_a_journal_that_cannot_be_read_is_a_failure(project: Project) -> None:
    """What is configured and does not work makes the exit code 1, with the sentence of the journal."""
    (project.folder / "runs.db").write_bytes(b"no database" * 100)
    answer = project.run("doctor", "--journal", "sqlite:runs.db", "--json")
    journal = next(one for one in answer.json["findings"] if one["part"] == "journal")
    assert (answer.code, answer.json["ok"], journal["state"]) == (1, False, "failed")
    assert "runs.db" in journal["detail"]


def test_a_held_run_is_named_with_its_process(project: Project) -> None:
    """The line of the journal has its format and the runs that processes hold."""

    async def look() -> Answer:
        async with SqliteJournal(project.folder / "runs.db") as journal:
            log = await journal.open(RunInfo("held", "grow"))
            answer = await asyncio.to_thread(
                project.run, "doctor", "--journal", "sqlite:runs.db", "--json"
            )
            await log.close(log.info)
            return answer

    findings = asyncio.run(look()).json["findings"]
    detail = next(one["detail"] for one in findings if one["part"] == "journal")
    assert "its format is" in detail and "1 running run; held is held by " in detail
