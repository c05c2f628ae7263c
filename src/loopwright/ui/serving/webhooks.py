"""Webhooks: a POST when a run needs a person, has failed or has ended otherwise, by the Standard Webhooks format.

A delivery is at least once, also over a restart: what is to be sent is stored before it is sent, and its ID is that of
the event, so that the receiver can tell a repetition. The journal says what has happened, also while no server ran.
See https://www.standardwebhooks.com.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import os
import secrets
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from ...errors import ConfigurationError, JournalError
from ...journal import RunInfo
from ...journal.questions import pending
from ...records.codec import Json
from ...tools.probes import SameHost
from .service import OVER, Service

_PREFIX = "whsec_"
_TIMEOUT = 10.0  # seconds for an answer
_LOOK = 0.5  # seconds between two looks whether the journal has changed
_AGAIN = 30.0  # seconds to a look without a change that is known of
_PAUSE = 2.0  # seconds to the second attempt; each next pause is twice as long
_LONGEST = 3600.0
_ROWS = 200  # the latest runs, in which ended ones are noticed; open ones are followed at any age
_KEPT = 10_000  # events that are known to be sent


def new_secret() -> str:
    """Return a new secret in the form of the standard."""
    return _PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def signature(secret: str, message_id: str, timestamp: int, body: str) -> str:
    """Return the header `webhook-signature` of a message."""
    key = base64.b64decode(secret.removeprefix(_PREFIX))
    signed = hmac.new(key, f"{message_id}.{timestamp}.{body}".encode(), hashlib.sha256).digest()
    return f"v1,{base64.b64encode(signed).decode()}"


class Webhooks:
    """Sends the events of the runs of a service while it is entered.

    Args:
        service: the service.
        url: the receiver.
        note: receives a sentence about a failed delivery.
        pause: seconds to the second attempt. Default: 2.
    """

    def __init__(
        self, service: Service, url: str, note: Callable[[str], None], *, pause: float = _PAUSE
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigurationError(f"--webhook: {url!r} is not an http or https URL")
        self.secret = service.home.secret("webhook", new_secret)
        self._service = service
        self._url = url
        self._note = note
        self._pause = pause
        self._file = service.home.private_file("webhooks.json")
        self._state = _State.read(self._file)
        self._attempts: dict[
            str, tuple[int, float]
        ] = {}  # by event: their number, and the time of the next
        self._seen: dict[str, float] = {}  # by run: when it was last changed, as of the last look
        self._task: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._state.write(self._file)
        self._task = asyncio.create_task(self._work())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # A delivery in progress is finished and recorded, so that it is not repeated without need.
        self._stopping.set()
        if self._task is not None:
            await self._task

    async def _work(self) -> None:
        watch = self._service.journal.watch()
        version, looked = -1, 0.0
        try:
            while not self._stopping.is_set():
                with contextlib.suppress(JournalError):  # it may be there again later
                    now = watch.version()
                    if now != version or time.monotonic() - looked > _AGAIN:
                        await self._look()
                        version, looked = now, time.monotonic()
                await self._deliver()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), min(_LOOK, self._pause))
        finally:
            watch.close()

    async def _look(self) -> None:
        """Store what is new to be sent."""
        journal, state = self._service.journal, self._state
        rows = {row.run_id: row for row in await journal.runs(limit=_ROWS)}
        for run_id in [run_id for run_id in state.open if run_id not in rows]:
            with contextlib.suppress(JournalError):
                rows[run_id] = await journal.find(run_id)
        rows = {run_id: row for run_id, row in rows.items() if self._service.sees(row)}
        state.open = [run_id for run_id, row in rows.items() if row.status not in OVER]
        for row in rows.values():
            if row.updated < state.since or self._seen.get(row.run_id) == row.updated:
                continue
            kind, event = await self._event(row)
            if kind and event not in state.sent:
                state.pending.setdefault(event, _message(kind, row))
            self._seen[row.run_id] = row.updated
        self._seen = {run_id: self._seen[run_id] for run_id in rows if run_id in self._seen}
        state.write(self._file)

    async def _event(self, row: RunInfo) -> tuple[str, str]:
        """Return the type and the ID of the event that the state of a run is; "" for none."""
        if row.status in OVER:
            kind = "run.failed" if row.status == "failed" else "run.ended"
            return kind, f"{row.run_id}-{row.epoch}-ended"  # a run that is retried ends again
        if row.status != "suspended" or row.wake_at:
            return "", ""
        # By its last question: an answer to one of several is no event, and after the last answer nobody is needed.
        questions = await pending(self._service.journal, row.run_id)
        last = max((question.asked for question in questions), default=0)
        return ("run.suspended", f"{row.run_id}-{last}-asked") if last else ("", "")

    async def _deliver(self) -> None:
        for event, message in list(self._state.pending.items()):
            count, due = self._attempts.get(event, (0, 0.0))
            if time.monotonic() < due or self._stopping.is_set():
                continue
            problem = await asyncio.to_thread(self._post, event, json.dumps(message))
            if not problem:
                self._attempts.pop(event, None)
                self._state.delivered(event)
                self._state.write(self._file)
                continue
            pause = min(self._pause * 2**count, _LONGEST)
            self._attempts[event] = (min(count + 1, 30), time.monotonic() + pause)
            self._note(
                f"webhook {event} was not accepted: {problem}; next attempt in {pause:.0f} s"
            )

    def _post(self, event: str, body: str) -> str:
        """Return why the receiver did not accept a message, or ""."""
        now = int(time.time())
        headers = {
            "content-type": "application/json", "user-agent": "loopwright", "webhook-id": event,
            "webhook-timestamp": str(now), "webhook-signature": signature(self.secret, event, now, body),
        }  # fmt: skip
        request = urllib.request.Request(self._url, body.encode(), headers)  # noqa: S310 - http or https, as checked
        try:
            # Without redirects: the message is for the receiver that the operator named.
            with urllib.request.build_opener(SameHost()).open(request, timeout=_TIMEOUT):
                return ""
        except urllib.error.HTTPError as error:
            error.close()
            return f"status {error.code}"
        except (OSError, ValueError) as error:
            return str(getattr(error, "reason", error))


class _State:
    """What is to be sent and what was, in a file of the user's."""

    def __init__(self, data: Mapping[str, Json]) -> None:
        # What ended before the first start is history.
        self.since: float = data.get("since", time.time())
        self.open: list[str] = list(data.get("open", ()))
        self.pending: dict[str, Json] = dict(data.get("pending", {}))
        self.sent: dict[str, None] = dict.fromkeys(data.get("sent", ()))

    @classmethod
    def read(cls, file: Path) -> _State:
        try:
            return cls(json.loads(file.read_text("utf-8")))
        except (OSError, ValueError, AttributeError):
            return cls({})

    def delivered(self, event: str) -> None:
        del self.pending[event]
        self.sent[event] = None
        for old in list(self.sent)[:-_KEPT]:
            del self.sent[old]

    def write(self, file: Path) -> None:
        data = {
            "since": self.since,
            "open": self.open,
            "pending": self.pending,
            "sent": list(self.sent),
        }
        draft = file.with_suffix(".new")
        with os.fdopen(
            os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8"
        ) as stream:
            json.dump(data, stream)
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(file)


def _message(kind: str, info: RunInfo) -> Json:
    row = info.to_json()
    names = ("run_id", "name", "status", "reason", "detail", "iterations", "score", "usage")
    return {
        "type": kind,
        "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(info.updated)),
        "data": {name: row[name] for name in names},
    }
