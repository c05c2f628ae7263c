"""A FastAPI service: loops behind HTTP, with a person's approval between two requests.

    python examples/fastapi_service.py
    uvicorn --app-dir examples fastapi_service:app

It needs `pip install fastapi` (and `uvicorn` to serve it). Without a server it sends itself the requests of a client.

| request | answer |
|---|---|
| `POST /announcements` with `id` and `text` | status, output and the questions that wait |
| `GET /announcements/{id}` | the same |
| `POST /announcements/{id}/answers` with `question` and `value` | the status after the run has continued |
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from loopwright import Context, Loop, MaxIterations, Passed, resume, run, sequence
from loopwright.errors import RunNotFound
from loopwright.journal import open_journal
from loopwright.journal.questions import answer, pending

JOURNAL = f"sqlite:{Path(tempfile.gettempdir()) / 'loopwright-announcements.db'}"


async def shorten(text: str) -> str:
    """Drop the longest word; in your service, a prompt or an agent."""
    words = text.split()
    words.remove(max(words, key=len))
    return " ".join(words)


async def is_short(text: str) -> dict[str, Any]:
    """Return whether the text has at most six words."""
    count = len(text.split())
    return {"passed": count <= 6, "score": min(1.0, 6 / count), "feedback": f"{count} words"}


async def sign(text: str, ctx: Context) -> str:
    """Wait for the name of the person who signs; the run is suspended and needs no process."""
    return f"{text} Signed: {ctx.ask('signer', {'question': 'Who signs?'}, 'Who signs it?')}"


ends = Passed() | MaxIterations(9)
short = Loop(shorten, is_short, lambda last: last.output, until=ends, name="shorten")
announce = sequence(short, sign, name="announce")


class Announcement(BaseModel):
    """The body of a request."""

    id: str
    text: str


class Answer(BaseModel):
    """A person's answer to a question."""

    question: str
    value: str


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open one journal for all runs of the process."""
    async with open_journal(JOURNAL) as journal:
        app.state.journal = journal
        yield


app = FastAPI(lifespan=lifespan)


async def state_of(run_id: str, result: Any) -> dict[str, Any]:
    """Return what a client sees of a run."""
    questions = [question.path for question in await pending(app.state.journal, run_id)]
    return {"status": result.status, "output": result.output, "questions": questions}


@app.post("/announcements")
async def create(body: Announcement) -> dict[str, Any]:
    """Start a run. The same ID again returns the recorded run."""
    result = await run(announce, body.text, journal=app.state.journal, run_id=body.id)
    return await state_of(body.id, result)


@app.get("/announcements/{run_id}")
async def show(run_id: str) -> dict[str, Any]:
    """Return the state of a run; a finished or suspended run repeats nothing."""
    try:
        result = await resume(announce, run_id, journal=app.state.journal)
    except RunNotFound as error:
        raise HTTPException(404, str(error)) from error
    return await state_of(run_id, result)


@app.post("/announcements/{run_id}/answers")
async def reply(run_id: str, body: Answer) -> dict[str, Any]:
    """Record a person's answer and continue the run."""
    await answer(app.state.journal, run_id, body.question, body.value, who="client")
    return await show(run_id)


if __name__ == "__main__":
    from fastapi.testclient import TestClient

    Path(JOURNAL.removeprefix("sqlite:")).unlink(missing_ok=True)
    text = "The library unfortunately closes extraordinarily on Friday."
    with TestClient(app) as client:
        first = client.post("/announcements", json={"id": "library", "text": text}).json()
        print(first["status"], first["questions"])
        reply_to = {"question": first["questions"][0], "value": "Ann"}
        last = client.post("/announcements/library/answers", json=reply_to).json()
        print(last["status"], last["output"])
        print(client.get("/announcements/unknown").status_code)
