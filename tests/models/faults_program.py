"""Any number of faults, made from a seed, against a real client: `python faults_program.py --count 1000`.

Each fault is one request to a server that misbehaves in one way. Four things must hold: the outcome
is a reply or a fault of the vocabulary, exactly one request was made, no key is in anything that is
shown, and a stream that was cut before it said why it ended is never a reply.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from faults_case import VERDICT, Case
from faults_table import cases
from faulty_server import (
    DONE,
    USAGE,
    Answer,
    FaultyServer,
    Turn,
    completion,
    delta,
    sse,
    usage,
    whole,
)
from model_worlds import CANARIES, KEY, KEYS, everything, question

from loopwright.models import KINDS, ModelError, ProviderModel, Reply
from loopwright.models.errors import error_from_json

TIMERS = (4.0, 1.5, 6.0)
WORDS = ("yes", "no", '{"verdict": "yes", "score": 3}', "grün 💚", "a" * 300, KEY, "\\ud83d", "")
STATUSES = (200, 201, 204, 206, 300, 302, 307, 400, 401, 402, 403, 404, 408, 409, 413, 418, 422, 425,
            429, 451, 500, 501, 502, 503, 504, 520, 529, 599)  # fmt: skip
WAITS = ("3", "0", "-1", "nan", "1e9", "soon", "99999999999", "Wed, 21 Oct 2026 07:28:00 GMT", "")
MESSAGES = ("", "Rate limit reached", "insufficient_quota", "maximum context length is 8", f"bad key {KEY}",
            "response_format is not supported", "content_filter", "\0\ud800", "x" * 5000)  # fmt: skip


@dataclass
class Fault:
    """One behaviour, what it was made of, and what is known of its outcome."""

    name: str
    answer: Answer
    ask: dict[str, Any] = field(default_factory=dict)
    cut: bool = False  # before it said why it ended: must not be a reply
    text: str | None = None  # if it is whole: must be this text


class Maker:
    """Makes faults from a seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.table = [
            case for case in cases() if "timers" not in case.ask and "max_bytes" not in case.ask
        ]

    def fault(self, number: int) -> Fault:
        make = self.chance.choice(
            [
                self.known,
                self.cut,
                self.cut,
                self.flipped,
                self.chopped,
                self.status,
                self.shape,
                self.shape,
            ]
        )
        made = make()
        made.name = f"{number} {made.name}"
        if self.chance.random() < 0.3 and made.text is None:
            made.ask = {**made.ask, "schema": VERDICT}
        return made

    def known(self) -> Fault:
        case: Case = self.chance.choice(self.table)
        return Fault(f"known: {case.name}", case.answer, dict(case.ask))

    def stream(self) -> tuple[list[bytes], str, int]:
        """Return the pieces of a right answer, its text, and how many bytes say why it ended."""
        words = [self.chance.choice(WORDS[:5]) for _ in range(self.chance.randint(1, 6))]
        pieces = [sse(delta(word)) for word in words]
        if self.chance.random() < 0.3:
            pieces.insert(self.chance.randrange(len(pieces) + 1), b": keep-alive\n\n")
        pieces.append(sse(delta(finish="stop")))
        told = sum(map(len, pieces))
        pieces += [sse(usage()), DONE]
        return pieces, "".join(words), told

    def cut(self) -> Fault:
        pieces, _, told = self.stream()
        body = b"".join(pieces)
        at = self.chance.randrange(len(body) + 1)
        how = self.chance.choice(["end", "close", "reset", "hang"])
        # The blank line after the event is what makes it one; its line breaks may be missing.
        return Fault(
            f"cut at {at} of {len(body)}, {how}", _sends([body[:at]], how), cut=at < told - 2
        )

    def flipped(self) -> Fault:
        body = bytearray(b"".join(self.stream()[0]))
        for _ in range(self.chance.randint(1, 5)):
            place = self.chance.randrange(len(body))
            deed = self.chance.randrange(3)
            if deed == 0:
                body[place] ^= 1 << self.chance.randrange(8)
            elif deed == 1:
                del body[place : place + self.chance.randint(1, 9)]
            else:
                body[place:place] = self.chance.randbytes(self.chance.randint(1, 9))
        return Fault("flipped", _sends([bytes(body)], "end"))

    def chopped(self) -> Fault:
        pieces, text, _ = self.stream()
        body = b"".join(pieces)
        places = sorted({0, len(body), *(self.chance.randrange(len(body)) for _ in range(40))})
        parts = [body[a:b] for a, b in itertools.pairwise(places)]
        return Fault("chopped", _sends(parts, "end"), text=text)

    def status(self) -> Fault:
        code = self.chance.choice(STATUSES)
        message = self.chance.choice(MESSAGES)
        body: Any = self.chance.choice(
            [
                {"error": {"message": message, "code": message[:30]}}, {"error": message}, message,
                [{"error": {"message": message}}], {"detail": message}, b"", b"\xff\xfe", None, 7,
                {"error": {"message": {"nested": message}}}, f"<html>{message}</html>".encode("utf-8", "replace"),
            ]
        )  # fmt: skip
        headers = {"retry-after": self.chance.choice(WAITS)} if self.chance.random() < 0.5 else {}
        return Fault(f"status {code}", whole(body, code, **headers))

    def shape(self) -> Fault:
        chunk = self._spoiled(
            delta("text") if self.chance.random() < 0.6 else completion({"content": "text"})
        )
        if self.chance.random() < 0.5:
            return Fault("shape, whole", whole(chunk))
        pieces = [
            sse(chunk),
            sse(self._spoiled(delta(finish="stop"))),
            sse(self._spoiled(usage(USAGE))),
        ]
        return Fault("shape, stream", _sends([*pieces, DONE], "end"))

    def _spoiled(self, value: Any) -> Any:
        """Replace some parts of a JSON value by others."""
        if self.chance.random() < 0.15:
            return self.chance.choice(
                [None, True, -1, 1e300, "x", "", [], {}, [None], {"a": 1}, "💚"]
            )
        if isinstance(value, dict):
            return {k: self._spoiled(v) for k, v in value.items() if self.chance.random() < 0.95}
        return [self._spoiled(v) for v in value] if isinstance(value, list) else value


def _sends(parts: list[bytes], how: str) -> Answer:
    async def answer(turn: Turn) -> None:
        await turn.head()
        for part in parts:
            await turn.chunk(part)
        if how == "end":
            await turn.end()
        elif how == "close":
            turn.writer.close()
        elif how == "reset":
            await asyncio.sleep(0.01)
            turn.reset()
        else:
            await turn.hang()

    return answer


async def judge(fault: Fault, model: ProviderModel) -> tuple[str, str]:
    """Return how a fault came out, and what is wrong with that, or ""."""
    async with FaultyServer(fault.answer) as server:
        request = question(server.url, timers=TIMERS, **fault.ask)
        try:
            found: Reply | ModelError = await asyncio.wait_for(model.complete(request), 60)
        except ModelError as error:
            found = error
        except Exception as error:  # whatever gets out is what this program looks for
            return "escaped", f"{type(error).__name__}: {error}"
        requests = len(server.requests)
    return _named(found), _wrong(fault, found, requests)


def _named(found: Reply | ModelError) -> str:
    if isinstance(found, Reply):
        return "reply"
    return f"{found.kind}/{found.reason}" if found.reason else found.kind


def _wrong(fault: Fault, found: Reply | ModelError, requests: int) -> str:
    if requests != 1:
        return f"{requests} requests"
    if any(canary in everything(found) for canary in CANARIES):
        return "a key is shown"
    if isinstance(found, ModelError):
        known = found.kind in KINDS and error_from_json(json.loads(json.dumps(found.to_json())))
        return "" if known and fault.text is None else f"unexpected {found.kind}: {found}"
    if fault.cut:
        return f"a cut stream became the reply {found.text!r}"
    if fault.text is not None and found.text != fault.text:
        return f"{found.text!r} instead of {fault.text!r}"
    return "" if json.loads(json.dumps(found.to_json())) else "not JSON"


async def program(count: int, seed: int, at_once: int = 16) -> tuple[Counter[str], list[str]]:
    """Make and judge `count` faults; return how they came out and what was wrong."""
    from pydantic_ai.models import override_allow_model_requests

    maker, room = Maker(seed), asyncio.Semaphore(at_once)
    outcomes: Counter[str] = Counter()
    wrong: list[str] = []

    async def one(fault: Fault, model: ProviderModel) -> None:
        async with room:
            name, problem = await judge(fault, model)
        outcomes[name] += 1
        if problem:
            wrong.append(f"{fault.name}: {problem}")

    with override_allow_model_requests(True):
        async with ProviderModel(KEYS) as model:
            faults = [maker.fault(number) for number in range(count)]
            await asyncio.gather(*(one(fault, model) for fault in faults))
    return outcomes, wrong


def main() -> int:
    """Run the program from the command line and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    began = time.monotonic()
    outcomes, wrong = asyncio.run(program(given.count, given.seed))
    lines = [f"{given.count} faults, seed {given.seed}, {time.monotonic() - began:.1f} s"]
    lines += [f"  {times:6} {name}" for name, times in outcomes.most_common()]
    lines += [f"{len(wrong)} wrong", *(f"  {line[:300]}" for line in wrong)]
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
