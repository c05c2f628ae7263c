"""The operations over HTTP: who is let in, what a request may be, and the description of it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from starlette.applications import Starlette

from loopwright.records.json_schema import problem_with
from loopwright.ui.cli import main
from loopwright.ui.serving.http import create_app, openapi
from loopwright.ui.serving.mcp import PATH, WorkflowServer
from loopwright.ui.serving.operations import OPERATIONS
from loopwright.ui.serving.service import Service
from loopwright.ui.web.access import AccessGuard

DOCS = Path(__file__).resolve().parents[3] / "docs"
PORT, TOKEN = 8124, "t" * 43
HOST = f"127.0.0.1:{PORT}"
RIGHT = {"authorization": f"Bearer {TOKEN}"}


def guarded(app: Any, **options: Any) -> AccessGuard:
    return AccessGuard(
        app,
        port=PORT,
        token=TOKEN,
        program="loopwright serve",
        **{"changing": ("POST",), **options},
    )


def client_of(app: Any, **headers: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url=f"http://{HOST}", headers=headers
    )


def returned_by(name: str) -> Any:
    """Return the schema of the result of an operation in the description."""
    described: Any = openapi()
    (route,) = [
        one
        for path in described["paths"].values()
        for one in path.values()
        if one["operationId"] == name
    ]
    return route["responses"]["200"]["content"]["application/json"]["schema"]


@pytest.fixture
async def client(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    """A client with the token."""
    async with client_of(guarded(create_app(service)), **RIGHT) as made:
        yield made


WRONG = {
    "no token": ({}, 401), "wrong token": ({"authorization": f"Bearer {'u' * 43}"}, 401),
    "bad host": ({**RIGHT, "host": f"evil.example:{PORT}"}, 421),
    "bad origin": ({**RIGHT, "origin": "http://evil.example"}, 403),
    "another site": ({**RIGHT, "sec-fetch-site": "cross-site"}, 403),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
async def test_nobody_else_is_let_in(service: Service, name: str) -> None:
    """Every route of both servers refuses every wrong request, and nothing is started."""
    headers, status = WRONG[name]
    api, tools = create_app(service), WorkflowServer(service).over_http()
    assert isinstance(tools, Starlette)
    for app in (api, tools):
        async with client_of(guarded(app, changing=("POST", "DELETE")), **headers) as client:
            for path in ("/", "/openapi.json", "/nowhere", PATH, *(one.path for one in OPERATIONS)):
                for method in ("GET", "POST", "DELETE"):
                    answer = await client.request(
                        method, path, json={} if method == "POST" else None
                    )
                    assert (path, answer.status_code) == (path, status)
                    assert list(answer.json()) == ["error"]
                    assert TOKEN not in answer.text
    assert await service.journal.runs() == []


async def test_a_browser_can_read_and_change_nothing(service: Service) -> None:
    """The cookie opens the description; a change needs the header, which no form can send."""
    async with client_of(guarded(create_app(service))) as client:
        entered = await client.get(f"/?token={TOKEN}")
        assert (entered.status_code, entered.headers["location"]) == (303, "/")
        cookie = {"cookie": entered.headers["set-cookie"].partition(";")[0]}
        page = await client.get("/", headers=cookie)
        assert page.status_code == 200
        assert all(operation.path.replace("{", "{") in page.text for operation in OPERATIONS)
        body = {"workflow": "plain.yaml"}
        refused = await client.post("/runs", json=body, headers={**cookie, "x-loopwright": "1"})
        assert (refused.status_code, refused.json()["error"]) == (
            401, "send the header Authorization: Bearer TOKEN; loopwright serve printed the file of the token",
        )  # fmt: skip
    assert await service.journal.runs() == []


async def test_another_interface_is_called_by_any_name(service: Service) -> None:
    """There the name is not known; the token is, and a page of another site is still refused."""
    async with client_of(
        guarded(create_app(service), any_host=True), host="loops.example"
    ) as client:
        assert (await client.get("/workflows")).status_code == 401
        assert (await client.get("/workflows", headers=RIGHT)).status_code == 200
        origin = {**RIGHT, "origin": "http://evil.example"}
        assert (await client.get("/workflows", headers=origin)).status_code == 403


async def test_a_run_from_the_check_to_the_result(
    service: Service, client: httpx.AsyncClient
) -> None:
    """A repeated key starts nothing, two clients at once have one run, and what is unknown has its status."""
    confirmation = (await client.get("/check", params={"workflow": "acts.yaml"})).json()[
        "confirmation"
    ]
    body = {"workflow": "acts.yaml", "input": "Ada", "confirmation": confirmation}
    key = {"idempotency-key": '"order 17"'}
    first, second = await asyncio.gather(
        *(client.post("/runs", json=body, headers=key) for _ in "ab")
    )
    assert first.status_code == second.status_code == 200
    run_id = first.json()["run_id"]
    assert second.json()["run_id"] == run_id
    done = await client.get(f"/runs/{run_id}/result", params={"wait": "60"})
    assert done.json()["output"] == "Ada"
    assert (await client.get(f"/runs/{run_id}")).json()["status"] == "satisfied"
    listed = (await client.get("/workflows")).json()
    assert len(listed["runs"]) == 1
    returned = returned_by("list")
    assert problem_with(listed, returned) == ""
    assert set(listed["runs"][0]) == set(returned["properties"]["runs"]["items"]["properties"])
    for one in listed["workflows"]:
        assert set(one) <= set(returned["properties"]["workflows"]["items"]["properties"])
    refused = {
        ("GET", "/runs/nothing", "", 404): "there is no run 'nothing'",
        ("POST", f"/runs/{run_id}/cancel", "{}", 409): "is satisfied, so there is nothing to cancel",
        ("POST", f"/runs/{run_id}/approve", '{"answer": true}', 400): "no question of this run is open",
        ("POST", "/runs", json.dumps({**body, "id": "order 17", "input": "Bob"}), 409): "has a run with another input",
        ("POST", "/runs", json.dumps({**body, "confirmation": "x"}), 400): "it is not one that check returned",
        ("POST", "/runs", '{"workflow"', 400): "the request is not JSON",
        ("POST", "/runs", "[]", 400): "the request is not a JSON object",
        ("POST", "/runs", '{"workflow": 1}', 400): "run: workflow: 1 is not of type 'string'",
        ("GET", "/check?workflw=x", "", 400): "check: unknown argument 'workflw'; did you mean 'workflow'?",
        ("GET", f"/runs/{run_id}/result?wait=long", "", 400): "result: wait: 'long' is not of type 'number'",
        ("GET", "/runs", "", 405): "known here: GET /workflows",
        ("GET", "/nowhere", "", 404): "there is no GET /nowhere",
        # Without a body there is nothing that needs a type.
        ("POST", f"/runs/{run_id}/cancel", "", 409): "is satisfied, so there is nothing to cancel",
        ("POST", "/runs", "", 400): "run: the argument 'workflow' is missing",
        ("PUT", "/runs", "", 405): "use GET to read and POST to change",
    }  # fmt: skip
    for (method, path, content, status), sentence in refused.items():
        headers = {"content-type": "application/json"} if content else {}
        answer = await client.request(method, path, content=content or None, headers=headers)
        assert (path, answer.status_code) == (path, status)
        assert sentence in answer.json()["error"]
    same = await client.post("/runs", json={**body, "id": "order 17"}, headers=key)
    assert same.json()["run_id"] == run_id
    other = await client.post("/runs", json={**body, "id": "order 18"}, headers=key)
    assert (other.status_code, other.json()["error"]) == (
        400, "id: 'order 18' is not the header Idempotency-Key, 'order 17'; send one of them",
    )  # fmt: skip
    form = await client.post("/runs", data={"workflow": "plain.yaml"})
    assert (form.status_code, form.json()) == (
        415, {"error": "a change must be sent as application/json"},
    )  # fmt: skip

    async def endless() -> AsyncIterator[bytes]:
        yield b"{}"

    sent_as = {"content-type": "application/json"}
    chunked = await client.post(f"/runs/{run_id}/cancel", content=endless(), headers=sent_as)
    assert (chunked.status_code, list(chunked.json())) == (413, ["error"])


async def test_a_question_is_answered(client: httpx.AsyncClient) -> None:
    """The status has the question with the forms of its answers, as the guide has them, and the answer continues the run."""
    waiting = await client.post("/runs", json={"workflow": "asks.yaml", "wait": 60})
    run_id = waiting.json()["run_id"]
    state = (await client.get(f"/runs/{run_id}")).json()
    returned = returned_by("status")
    assert problem_with(state, returned) == ""
    assert set(state) == set(returned["properties"]) - {"waits_for"}
    (question,) = state["questions"]
    assert '{"approve": true' in question["answers"]
    guide = (DOCS / "guide" / "serving.md").read_text("utf-8")
    section = guide.partition("## Answer a question")[2].partition("\n## ")[0]
    (approve,) = [one for one in OPERATIONS if one.name == "approve"]
    for name in (*question, *approve.properties):
        assert f"`{name}`" in section, name
    body = {"answer": {"approve": False, "accept": True}}
    assert (await client.post(f"/runs/{run_id}/approve", json=body)).status_code == 200
    done = await client.get(f"/runs/{run_id}/result", params={"wait": 60})
    assert done.json()["status"] == "satisfied"


def test_the_description_is_that_of_the_table() -> None:
    """Each operation has its route, its arguments, where they are, and the header of its ID."""
    described: Any = openapi()
    for operation in OPERATIONS:
        route = described["paths"][operation.path][operation.method.lower()]
        places = {one["name"]: one["in"] for one in route["parameters"]}
        content = route.get("requestBody", {}).get("content", {})
        body = content["application/json"]["schema"]["properties"] if content else {}
        names = {*places, *body} - {"Idempotency-Key"}
        assert (route["operationId"], names) == (operation.name, set(operation.properties))
        assert ("Idempotency-Key" in places) == ("id" in operation.properties)
        assert all(
            place == "path" for name, place in places.items() if f"{{{name}}}" in operation.path
        )


async def test_tools_over_streamable_http(service: Service) -> None:
    """The official client calls a tool through the guard."""
    app = WorkflowServer(service).over_http()
    assert isinstance(app, Starlette)
    async with app.router.lifespan_context(app):
        import httpx2

        transport = httpx2.ASGITransport(guarded(app, changing=("POST", "DELETE")))
        async with httpx2.AsyncClient(transport=transport, headers=RIGHT) as http:
            url = f"http://{HOST}{PATH}"
            async with Client(streamable_http_client(url, http_client=http)) as client:
                checked = await client.call_tool("check", {"workflow": "plain.yaml"})
                assert checked.structured_content is not None
                assert checked.structured_content["ok"]


def test_the_server_itself(folder: Path) -> None:
    """It prints its address and the files of its secrets, first that of the token, keeps the token over a restart, and ends by Ctrl-C."""
    import subprocess

    from warm_python import warm_python

    environment = {k: v for k, v in os.environ.items() if not k.startswith("LOOPWRIGHT")}
    tokens = []
    for _ in range(2):
        words = ["-m", "loopwright", "serve", str(folder), "--webhook", "http://127.0.0.1:9/"]
        process = warm_python().start(
            words, cwd=folder.parent, env=environment, stderr=subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stderr is not None
        address = process.stdout.readline().strip()
        lines = [process.stderr.readline() for _ in range(3)]
        file = Path(lines[0].partition("the token is in ")[2].partition(";")[0])
        assert "webhooks are signed with the secret in" in lines[2]
        tokens.append(file.read_text())
        request = urllib.request.Request(
            address + "workflows", headers={"authorization": f"Bearer {tokens[-1]}"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert len(json.load(answer)["workflows"]) == 4
        # An address for an event has its own token.
        unknown = httpx.post(f"{address}signal/r/done/k?token=x", content="1")
        assert (unknown.status_code, unknown.json()) == (404, {"error": "there is no such address"})
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(30) == 130
        process.stdout.close()
        process.stderr.close()
    assert tokens[0] == tokens[1]


REFUSED = {
    "no folder": (["serve", "nowhere"], "FOLDER: 'nowhere' is not a folder"),
    "a wrong receiver": (["serve", "--webhook", "ftp://x"], "--webhook: 'ftp://x' is not an http or https URL"),
    "an address of others": (["serve", "--host", "192.0.2.1"], "cannot be used"),
    "tools of no folder": (["mcp", "plain.yaml"], "FOLDER: 'plain.yaml' is not a folder"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_command_line(folder: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence, and exit code 2."""
    words, sentence = REFUSED[name]
    assert main(words) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(("command", "extra"), [("mcp", "mcp"), ("serve", "starlette")])
def test_a_missing_extra(
    folder: Path,
    command: str,
    extra: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The sentence has the command that installs it."""
    for name in [name for name in sys.modules if name.partition(".")[0] == extra]:
        monkeypatch.delitem(sys.modules, name)
    for name in [
        name
        for name in sys.modules
        if name.startswith(("loopwright.ui.serving.", "loopwright.ui.web"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, extra, None)
    assert main([command]) == 2
    assert (
        f"pip install 'loopwright[{'ui' if command == 'serve' else 'mcp'}]'"
        in capsys.readouterr().err
    )


async def test_a_foreign_journal_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder `.loopwright` that came from elsewhere is not used."""
    (folder / ".loopwright").mkdir()
    (folder / ".loopwright" / "runs.db").write_text("x")
    assert await asyncio.to_thread(main, ["serve"]) == 2
    assert "is not known as a folder of yours" in capsys.readouterr().err
