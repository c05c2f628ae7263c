"""Requests of coding agents while CI runs, of one that polls and of one that waits: `python -m benchmarks.wait_agents`.

One simulated second is SECOND real ones, and CI takes eight simulated minutes from the push. The agent that polls looks at CI every
15 simulated seconds, and asks the model after each look. The run that waits leaves its process. Meanwhile it is resumed in this
process, in one that is killed and in a new one, and shown by the command line. Both have the same model, a server on loopback that
counts the requests; a token is four characters of the conversation.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from loopwright import Loop, MaxIterations, Passed, agent, resume, run, shell
from loopwright import signal as send
from loopwright.coding.agents import Manifest, manifest_names
from loopwright.journal import Journal, open_journal
from loopwright.testing.fake_agent import manifest

from .measuring import Row

SECOND = 0.01  # real seconds of a simulated one
CI = 480 * SECOND
EVERY = 15 * SECOND
TASK = (
    "Repair the function, push, and make CI green. CI is an event with the name ci and the key k."
)
GREEN = {"conclusion": "success"}
WAIT = 'LOOPWRIGHT WAIT {"event": "ci", "key": "k", "timeout": "1h"}'


@dataclass
class Model:
    """The model and CI. A wait lasts from the first answer after the push until CI has ended."""

    requests: list[tuple[float, int]] = field(default_factory=list)  # when, and input tokens
    starts: list[float] = field(default_factory=list)  # of the program
    pushed: float = 0.0
    waits: float = 0.0
    ended: float = 0.0  # when CI told the run; else it ends CI seconds after the push

    def answer(self, path: str, value: Any) -> Any:
        """Answer a request of the agent."""
        now = time.monotonic()
        if path == "/start":
            self.starts.append(now)
        elif path == "/push":
            self.pushed = now
            return "pushed; CI runs"
        elif path == "/check":
            return f"CI: {json.dumps(GREEN) if now >= self.pushed + CI else 'it runs'}"
        elif path == "/model":
            tokens = len(json.dumps(value)) // 4
            self.requests.append((now, tokens))
            tool, actions = self.turn(value)
            if self.pushed and not self.waits:
                self.waits = time.monotonic()
            return {"tool": tool, "do": actions, "tokens": [tokens, len(json.dumps(actions)) // 4]}
        return None

    def turn(self, messages: list[dict[str, str]]) -> tuple[str | None, list[Any]]:
        """Return the next tool, or the actions that end the turn of the user."""
        last = messages[-1]["content"]
        if "success" in last:
            return None, [{"write": {"answer.txt": "42"}}, {"say": "CI is green."}]
        if messages[-1]["role"] == "user":
            return "push", [{"say": "I repaired the function and push it."}]
        if "LOOPWRIGHT WAIT" in messages[0]["content"]:
            return None, [{"say": f"Pushed; CI runs.\n{WAIT}"}]
        return "check", [{"say": "CI runs. I look again in 15 seconds."}]

    def meanwhile(self) -> tuple[int, int, int]:
        """Return the requests during the wait, their input tokens, and the starts."""
        until = self.ended or self.pushed + CI
        during = [tokens for at, tokens in self.requests if self.waits < at < until]
        return len(during), sum(during), sum(self.waits < at < until for at in self.starts)


def serve(model: Model) -> ThreadingHTTPServer:
    """Start the server."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            value = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            data = json.dumps(model.answer(self.path, value)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def coding_loop(folder: Path, url: str, name: str, waits: bool) -> Loop:
    """Return the loop: an agent step, until a file has the answer."""
    program = [sys.executable, "-P", str(Path(__file__).with_name("polling_agent.py"))]
    words = [*program, url, str(folder / "sessions"), str(EVERY), name]
    made = Manifest.model_validate({**manifest(name, ""), "program": words})
    work = folder / "work"
    coder = agent(made, TASK, workspace="here", cwd=work, waits=waits or None)
    return Loop(
        coder, shell(["grep", "-qx", "42", "answer.txt"], cwd=work), name="ci",
        until=Passed() | MaxIterations(3),
    )  # fmt: skip


async def again(words: list[str], on_wait: Any) -> Any:
    """Resume the run with a journal of its own."""
    folder, url, name = Path(words[0]), words[1], words[2]
    async with open_journal(f"sqlite:{folder}/runs.db") as journal:
        loop = coding_loop(folder, url, name, True)
        return await resume(loop, "r", journal=journal, on_wait=on_wait)


async def looks(words: list[str], journal: Journal) -> None:
    """Look at a run that waits: resumed here, in a process that stays and is killed, and in one that leaves; and shown."""
    root = Path(__file__).parents[1]

    def output(*words: str) -> str:
        return subprocess.check_output([sys.executable, "-m", *words], cwd=root, text=True)

    assert (await again(words, "leave")).reason == "waiting"
    program = [sys.executable, "-m", "benchmarks.wait_agents", "stay", *words]
    stays = subprocess.Popen(program, cwd=root)
    while stays.poll() is None and (await journal.find("r")).status != "running":
        await asyncio.sleep(0.02)
    await asyncio.sleep(10 * SECOND)
    stays.kill()
    assert stays.wait() == -signal.SIGKILL
    left = await asyncio.to_thread(output, "benchmarks.wait_agents", "leave", *words)
    assert left == "waiting\n", left
    store = f"sqlite:{words[0]}/runs.db"
    shown = await asyncio.to_thread(output, "loopwright", "show", "r", "--journal", store)
    assert "waits for" in shown, shown


async def measured(name: str, waits: bool) -> tuple[Model, Any]:
    """Run the loop, and return what the server counted, and the result."""
    model = Model()
    with tempfile.TemporaryDirectory() as root, serve(model) as server:
        folder = Path(root)
        work = folder / "work"
        work.mkdir()
        words = [root, f"http://127.0.0.1:{server.server_address[1]}", name]
        async with open_journal(f"sqlite:{folder}/runs.db") as journal:
            loop = coding_loop(folder, words[1], name, waits)
            result = await run(loop, journal=journal, run_id="r", on_wait="leave")
            if waits:
                assert result.reason == "waiting", result.detail
                await looks(words, journal)
                await asyncio.sleep(max(0.0, model.pushed + CI - time.monotonic()))
                model.ended = time.monotonic()
                await send("ci", GREEN, key="k", journal=journal)
                result = await again(words, "leave")
        server.shutdown()
        assert result.usage.input_tokens == sum(tokens for _, tokens in model.requests)
        files = {path.name: path.read_text() for path in work.iterdir() if path.is_file()}
    return model, (result.status, result.iterations, result.output, files)


def rows() -> Iterator[Row]:
    """Measure both ways in each format; yield the requests during the waits."""
    for name in manifest_names():
        polls, polled = asyncio.run(measured(name, False))
        waits, waited = asyncio.run(measured(name, True))
        assert polled == waited, (polled, waited)
        assert waits.meanwhile()[2] == 0
        notes = []
        for how, model in (("polling", polls), ("waiting", waits)):
            requests, tokens, _ = model.meanwhile()
            notes.append(
                f"{how}: {requests} of {len(model.requests)} requests, {tokens:,} of "
                f"{sum(tokens for _, tokens in model.requests):,} input tokens, started {len(model.starts)} x"
            )
        took = (waits.ended - waits.pushed) / SECOND / 60
        note = "; ".join([*notes, f"{took:.1f} simulated minutes, the same result"])
        yield Row(f"{name}: requests during a wait", waits.meanwhile()[0], 0, "", note)


if __name__ == "__main__":
    if sys.argv[1:]:
        print(asyncio.run(again(sys.argv[2:], sys.argv[1])).reason)
    else:
        for row in rows():
            print(row, flush=True)
