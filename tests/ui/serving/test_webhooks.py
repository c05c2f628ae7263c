"""Webhooks: which events are sent, their signature, and that each arrives in spite of failures and restarts."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import stat
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from loopwright import run
from loopwright.documents import load
from loopwright.journal.questions import answer
from loopwright.ui.serving.service import Service
from loopwright.ui.serving.webhooks import Webhooks, new_secret, signature

from .conftest import PLAIN, until

FAILS = """
schema: loopwright/1
name: fails
steps:
  - {name: fail, set: "{{ 1 / 0 }}"}
"""


class Receiver:
    """A receiver on loopback; the next requests get the statuses in `statuses`, all others 204."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.seen: list[tuple[dict[str, str], str]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"])).decode()
                receiver.seen.append(({k.lower(): v for k, v in self.headers.items()}, body))
                self.send_response(receiver.statuses.pop(0) if receiver.statuses else 204)
                self.send_header("location", "/elsewhere")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook"
        self.thread = threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.01}
        )
        self.thread.start()

    def types(self) -> list[str]:
        return [json.loads(body)["type"] for _, body in self.seen]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.server.shutdown()
    made.thread.join()
    made.server.server_close()


def started(service: Service, url: str, said: list[str] | None = None) -> Webhooks:
    return Webhooks(service, url, (said if said is not None else []).append, pause=0.01)


async def test_the_events_that_a_person_or_a_program_acts_on(
    service: Service, folder: Path, receiver: Receiver
) -> None:
    """A run that needs a person, that failed and that ended is one event each, signed; history and other folders are none."""
    (folder / "fails.yaml").write_text(FAILS, "utf-8")
    other = folder.parent / "other.yaml"
    other.write_text(PLAIN, "utf-8")
    await run(load("plain.yaml"), journal=service.journal, run_id="before")
    async with started(service, receiver.url) as hooks:
        for name, document in {
            "asks": "asks.yaml",
            "fails": "fails.yaml",
            "foreign": other,
            "plain": "plain.yaml",
        }.items():
            await run(load(document), journal=service.journal, run_id=name)

        async def has(count: int = 3) -> bool:
            return len(receiver.seen) >= count

        await until(has)
        await answer(
            service.journal, "asks", "asks/grow/1/approve", {"approve": False, "accept": True}
        )
        await run(load("asks.yaml"), journal=service.journal, run_id="asks")
        await until(lambda: has(4))
    events = {
        (json.loads(body)["data"]["run_id"], json.loads(body)["type"]) for _, body in receiver.seen
    }
    assert events == {
        ("asks", "run.suspended"), ("fails", "run.failed"), ("plain", "run.ended"), ("asks", "run.ended"),
    }  # fmt: skip
    assert len({headers["webhook-id"] for headers, _ in receiver.seen}) == len(receiver.seen) == 4
    for headers, body in receiver.seen:
        key = base64.b64decode(hooks.secret.removeprefix("whsec_"))
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.{body}".encode()
        right = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        assert headers["webhook-signature"] == f"v1,{right}"
    assert all("Hello" not in body for _, body in receiver.seen)  # no outputs
    for name in ("webhook", "webhooks.json"):
        assert stat.S_IMODE(service.home.private_file(name).stat().st_mode) == 0o600


async def test_each_event_arrives_in_spite_of_failures_and_restarts(
    service: Service, receiver: Receiver
) -> None:
    """A refused one is sent again with the same ID, also by the next server, and what happened in between is sent then."""
    said: list[str] = []
    receiver.statuses = [500, 302, 404]
    async with started(service, receiver.url, said):
        await run(load("asks.yaml"), journal=service.journal, run_id="asks")

        async def is_delivered() -> bool:
            return len(receiver.seen) == 4

        await until(is_delivered)
    ids = {headers["webhook-id"] for headers, _ in receiver.seen}
    assert len(ids) == 1
    assert [one.split(": ")[1].split(";")[0] for one in said] == [
        "status 500",
        "status 302",
        "status 404",
    ]
    # A receiver that is gone: what was to be sent is stored.
    async with started(service, "http://127.0.0.1:9/", said):
        await run(load("plain.yaml"), journal=service.journal, run_id="plain")

        async def was_tried() -> bool:
            return any("plain" in one for one in said)

        await until(was_tried)
    await answer(service.journal, "asks", "asks/grow/1/approve", {"approve": False, "accept": True})
    await run(load("asks.yaml"), journal=service.journal, run_id="asks")
    async with started(service, receiver.url):

        async def has_all() -> bool:
            return len(receiver.seen) == 6

        await until(has_all)
    async with started(service, receiver.url):
        await run(load("plain.yaml"), journal=service.journal, run_id="last")

        async def has_last() -> bool:
            return len(receiver.seen) == 7

        await until(has_last)
    named = [json.loads(body)["data"]["run_id"] for _, body in receiver.seen]
    assert (sorted(named[4:6]), named[6]) == (["asks", "plain"], "last")
    file = service.home.private_file("webhooks.json")
    state: Any = json.loads(file.read_text())
    assert (state["pending"], len(state["sent"])) == ({}, 4)
    file.write_text("{")  # a damaged file is a first start
    assert started(service, receiver.url)._state.sent == {}


def test_the_signature_is_that_of_the_standard() -> None:
    """The example of the specification."""
    secret, body = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", '{"test": 2432232314}'
    wanted = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body) == wanted
    assert len(base64.b64decode(new_secret().removeprefix("whsec_"))) == 32
