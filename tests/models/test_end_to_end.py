"""Models, judges and money from end to end: deadlines, caps, a server of one's own, secrets."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import subprocess
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from faulty_answers import only_keep_alives, stalls_after_text, stalls_before_headers, trickles
from faulty_server import FaultyServer, says
from mock_server import serving

from loopwright import Budget, Loop, MaxIterations, Passed, Timeout, run
from loopwright.engine.step import CompositeStep
from loopwright.evaluators import judge
from loopwright.models import Message, Models, ProviderModel, Reply, Request, call_model
from loopwright.prompts import prompt
from loopwright.records import Reason, Result, Status, Usage
from loopwright.testing import run_virtual
from warm_python import warm_python

POLISH = Path(__file__).parents[2] / "examples" / "polish_text"
STALLS = {
    "a server that never answers": stalls_before_headers,
    "a stalled stream": stalls_after_text,
    "a trickling stream": trickles,
    "keep-alives and nothing else": only_keep_alives,
}
LIMIT = 0.5


# Deadlines.


@pytest.mark.anyio
@pytest.mark.usefixtures("loopback")
@pytest.mark.parametrize("stage", ["execute", "evaluate"])
@pytest.mark.parametrize("name", STALLS)
async def test_a_deadline_ends_a_call_in_flight(
    name: str, stage: str, record_property: Any
) -> None:
    """Worker or judge, stalled or trickling: the loop ends by its timeout, its round cut short."""
    async with FaultyServer(STALLS[name]) as server, ProviderModel({}) as model:
        options: Any = {"model": "openai_compatible:m", "base_url": server.url}
        worker: Any = prompt("Go.", **options) if stage == "execute" else _work
        checker: Any = judge("It is good.", **options) if stage == "evaluate" else None
        loop = Loop(worker, checker, until=Passed() | Timeout(LIMIT) | MaxIterations(3), name="l")
        resources = {"models": Models(model, known_prices=False)}
        await asyncio.to_thread(_load_client)
        began = time.monotonic()
        result = await asyncio.wait_for(run(loop, "in", resources=resources), 30)
        record_property("delay", time.monotonic() - began - LIMIT)
    assert (result.status, result.reason) == (Status.EXHAUSTED, Reason.TIMEOUT)
    assert result.history[-1].interrupted
    assert result.usage.calls == 1, "a cut call counts: nobody knows what it cost"


async def _work(value: Any) -> str:
    return f"work on {value}"


def _load_client() -> None:
    pass


# Caps.


class Slow:
    """A model with a latency of chance, which writes less than it may."""

    def __init__(self, seed: int, watch: Any) -> None:
        self.rng = random.Random(seed)
        self.watch = watch

    async def complete(self, request: Request, *, on_text: Any = None) -> Reply:
        self.watch()
        await asyncio.sleep(self.rng.uniform(0.01, 5))
        self.watch()
        written = self.rng.randint(1, request.max_tokens or 1)
        return Reply("x", usage=Usage(1, 10, written))


class Fan(CompositeStep):
    """A step that makes many calls at once and counts those that came through."""

    name = fingerprint = "fan"

    def __init__(self, count: int, seed: int) -> None:
        self.count = count
        self.sizes = [random.Random(seed).randint(5, 50) for _ in range(count)]
        self.account: Any = None
        self.refused: list[tuple[int, Usage]] = []
        self.over: list[float] = []
        self.done = 0

    def watch(self) -> None:
        total = self.account.settled.usd + self.account.reserved.usd
        if total > self.account.cap.usd + 1e-9:
            self.over.append(total)

    async def run(self, value: Any, ctx: Any) -> Result:
        self.account = ctx.run.account

        async def one(number: int) -> None:
            asked = Request(
                (Message("user", "hello"),), "m", "openai", max_tokens=self.sizes[number]
            )
            try:
                await call_model(ctx, f"call-{number}", asked)
            except BaseException as error:
                if type(error).__name__ != "Stopped":
                    raise
                self.refused.append((number, self.account.settled))
            else:
                self.done += 1
            self.watch()

        await asyncio.gather(*(one(number) for number in range(self.count)))
        return Result(Status.SATISFIED, Reason.COMPLETED, "", self.done, name=self.name)


PRICES = {"m": {"input": 1_000.0, "output": 1_000.0}}  # a token is a tenth of a cent


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("share", [0.3, 2.0])
def test_a_thousand_calls_at_once_stay_under_one_cap(seed: int, share: float) -> None:
    """Settled + reserved never above the cap; what is refused would not have fitted even then."""
    fan = Fan(1000, seed)
    cap = share * sum(10 + size / 2 for size in fan.sizes) / 1000
    models = Models(Slow(seed, fan.watch), prices=PRICES, known_prices=False)
    result = run_virtual(
        run(fan, "in", budget=Budget(usd=cap), resources={"models": models}), seed=seed
    )
    assert not fan.over
    assert result.usage.usd <= cap + 1e-9
    assert fan.done + len(fan.refused) == 1000
    for number, settled in fan.refused:
        asked = Request((Message("user", "hello"),), "m", "openai", max_tokens=fan.sizes[number])
        assert settled.usd + models.worst_case(asked).usd > cap
    assert bool(fan.refused) is (share < 1)


def test_a_run_that_its_budget_stops_says_which_call_did_not_fit() -> None:
    """By path, what it may cost, and what was spent of the cap."""
    models = Models(Slow(1, lambda: None), prices=PRICES, known_prices=False)
    loop = Loop(prompt("Go.", model="openai:m", max_tokens=20), until=MaxIterations(9), name="talk")
    result = run_virtual(run(loop, "in", budget=Budget(usd=0.1), resources={"models": models}))
    assert result.reason is Reason.BUDGET
    assert "the call talk/" in result.detail
    assert "did not fit" in result.detail
    assert "of 0.1 usd spent" in result.detail


# The command line against a server of one's own.


def command(*words: object, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("LOOPWRIGHT", "OPENAI"))}
    return warm_python().run(
        ["-m", "loopwright", *map(str, words)], cwd=cwd, env={**kept, **environ}, timeout=90
    )


def polisher(body: dict[str, Any], _: dict[str, str]) -> tuple[int, str]:
    """A worker who writes the same good text, and a judge who likes it."""
    said = "\n".join(str(message["content"]) for message in body["messages"])
    if "Criterion:" in said:
        return 200, json.dumps({"verdict": "yes", "score": 90, "reason": "it does"})
    return 200, "Operators: convert your files by 30 June, before 2.4. Ask in the channel."


@pytest.mark.slow
@pytest.mark.parametrize("by", ["option", "environment", "replies"])
def test_the_polish_example_runs_on_a_server_of_ones_own_and_on_replies(
    tmp_path: Path, by: str
) -> None:
    """`--model` and `LOOPWRIGHT_MODEL` name the model instead of the document; replies need none."""
    given = ["run", POLISH / "polish.yaml", "--input-file", POLISH / "draft.txt", "--json"]
    with serving(polisher) as url:
        at = ("openai_compatible:local", url)
        if by == "option":
            done = command(*given, "--model", at[0], "--model-url", at[1], cwd=tmp_path)
        elif by == "environment":
            named = {"LOOPWRIGHT_MODEL": at[0], "LOOPWRIGHT_MODEL_URL": at[1]}
            done = command(*given, cwd=tmp_path, **named)
        else:
            done = command(*given, "--replies", POLISH / "replies.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert (data["status"], data["iterations"]) == ("satisfied", 3 if by == "replies" else 1)
    apart = data["usage_by"]
    assert (apart["work"]["calls"], apart["judging"]["calls"]) == (
        (3, 9) if by == "replies" else (1, 3)
    )
    told = command("show", "last", cwd=tmp_path)
    assert "for work and" in told.stdout
    assert "for judging" in told.stdout
    assert json.loads(command("show", "last", "--json", cwd=tmp_path).stdout)["usage_by"] == apart


CANARIES = [
    f"sk-canary-{number:02d}-{random.Random(number).getrandbits(64):016x}" for number in range(20)
]
GOSSIP = """\
schema: loopwright/1
name: gossip
model: openai_compatible:m
model_url: URL
steps:
"""


def gossip(body: dict[str, Any], headers: dict[str, str]) -> tuple[int, str]:
    """A server that tells what it was sent: in replies, in errors, plain and encoded."""
    key = headers.get("authorization", "")
    word = key.removeprefix("Bearer ")
    shown = f"{key} {json.dumps(headers)} {quote(word)} {base64.b64encode(word.encode()).decode()}"
    number = int(word.split("-")[2])
    if number % 4 == 0:
        return 200, f"you sent {shown}"
    return (401, 400, 422)[number % 3], f"bad key {shown}"


def forms(key: str) -> list[str]:
    return [key, base64.b64encode(key.encode()).decode()]


@pytest.mark.slow
def test_no_key_is_written_down_anywhere(tmp_path: Path) -> None:
    """Twenty keys, a server that repeats them: none in journal, transcript, output, log or error."""
    steps = "".join(
        f"  - {{name: s{number}, prompt: 'Go.', api_key_env: KEY_{number}_API_KEY, on_failure: continue}}\n"
        for number in range(len(CANARIES))
    )
    keys = {f"KEY_{number}_API_KEY": key for number, key in enumerate(CANARIES)}
    with serving(gossip) as url:
        (tmp_path / "gossip.yaml").write_text(GOSSIP.replace("URL", url) + steps)
        told = [
            command(
                "run", "gossip.yaml", "--input", "x", "--transcript", "transcript.jsonl", "--verbose", "--yes",
                *more, cwd=tmp_path, LOOPWRIGHT_DEBUG="1", **keys,
            )
            for more in ((), ("--json",))
        ]  # fmt: skip
    told += [
        command("show", "last", *more, cwd=tmp_path) for more in ((), ("--trace",), ("--json",))
    ]
    assert told[0].returncode in (0, 3), told[0].stderr
    assert "[redacted]" in told[1].stdout
    assert (tmp_path / "transcript.jsonl").read_text().count("[redacted]") >= len(CANARIES)
    written = {"output": "".join(done.stdout + done.stderr for done in told).encode()}
    for file in tmp_path.rglob("*"):
        if file.is_file():
            written[file.name] = file.read_bytes()
    assert any(name.endswith(".db") for name in written)
    leaks = [
        (name, key)
        for name, data in written.items()
        for key in CANARIES
        for form in forms(key)
        if form.encode() in data
    ]
    assert not leaks


@pytest.mark.anyio
@pytest.mark.usefixtures("loopback")
async def test_a_good_reply_goes_through_the_same_path() -> None:
    """The server of these tests answers a prompt like any other endpoint."""
    async with FaultyServer(says("hello there")) as server, ProviderModel({}) as model:
        step = prompt("Go.", model="openai_compatible:m", base_url=server.url)
        resources = {"models": Models(model, known_prices=False)}
        result = await run(step, "in", resources=resources)
    assert (result.output, result.usage.calls) == ("hello there", 1)
