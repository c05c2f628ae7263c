"""Two corpora of model replies: one written with the reader, one written before its author read it.

`.venv/bin/python tests/evaluators/reply_corpora.py` prints the share that is read as expected, the
wrong values and the forged verdicts of both. Each reply that is read otherwise is printed with
`--verbose`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from loopwright import run_sync
from loopwright.evaluators import read_verdict, read_yes_no, score
from loopwright.models import read_value

DATA = Path(__file__).resolve().parent.parent / "data"
ASK = "ask"
MARK = "5e1d0c2ab94f7738"
KINDS = ("values", "verdicts", "scores", "yes_no")


@dataclass(frozen=True)
class Read:
    """One reply, the expected result and the result; `ask` where no result may be read."""

    kind: str
    group: str
    reply: str
    expected: Any
    actual: Any

    @property
    def right(self) -> bool:
        """Whether value and type are the expected ones."""
        return _same(self.actual, self.expected)

    @property
    def wrong(self) -> bool:
        """Whether a value was read that is not the expected one. Asking again is not wrong."""
        return not self.right and bool(self.actual != ASK)

    @property
    def forged(self) -> bool:
        """Whether a yes was read where the judge gave none."""
        return self.wrong and self.kind == "verdicts" and bool(self.actual == "yes")


def _same(left: Any, right: Any) -> bool:
    """Compare with types: 1 is not true. An integral float equals its integer."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[k], right[k]) for k in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right)


def read_kind(kind: str, row: dict[str, Any]) -> Any:
    """Read the reply of a row as its kind is read; return `ask` where nothing is read."""
    reply, finish = row["reply"], row.get("finish", "stop")
    if kind == "values":
        reading = read_value(reply, row["schema"], finish=finish)
        return ASK if reading.problem else reading.value
    if kind == "scores":
        scale = row.get("scale", (0.0, 1.0))
        step = score(row.get("label", "score"), (float(scale[0]), float(scale[1])))
        evaluation = run_sync(step, reply).unwrap()
        return ASK if evaluation.undecided else evaluation.score
    if kind == "yes_no":
        answer = read_yes_no(reply).answer
    else:
        answer = read_verdict(reply, candidate=row["candidate"], mark=MARK, finish=finish).answer
    return ASK if answer == "unparsable" else answer


def held_out() -> Iterator[Read]:
    """Read the corpus that was written before its author read the reader."""
    corpus = yaml.safe_load((DATA / "held_out_replies.yaml").read_text("utf-8"))
    for kind in KINDS:
        for group in corpus[kind]:
            for row in group["replies"]:
                reply = row["reply"].replace("MARK", MARK) if kind == "verdicts" else row["reply"]
                schema = corpus["schemas"].get(row.get("schema"))
                case = {
                    **row,
                    "reply": reply,
                    "schema": schema,
                    "candidate": group.get("candidate"),
                }
                actual = read_kind(kind, case)
                yield Read(kind, group["class"], reply, row["expected"], actual)


def first_half() -> Iterator[Read]:
    """Read the corpus that was written with the reader."""
    corpus = yaml.safe_load((DATA / "model_replies.yaml").read_text("utf-8"))
    for group in corpus["values"]:
        for reply, expected in group["replies"]:
            actual = read_kind("values", {"reply": reply, "schema": corpus["schema"]})
            wanted = ASK if isinstance(expected, str) else expected
            yield Read("values", group["group"], reply, wanted, actual)
    for candidate, text, expected in corpus["verdicts"]:
        reply = text.replace(corpus["mark"], MARK)
        actual = read_kind("verdicts", {"reply": reply, "candidate": candidate})
        yield Read("verdicts", "verdicts", reply, ASK if expected == "?" else expected, actual)
    for reply, expected in corpus["scores"]:
        actual = read_kind("scores", {"reply": reply})
        yield Read("scores", "scores", reply, ASK if expected is None else expected, actual)


CORPORA = {"written with the reader": first_half, "held out": held_out}


def main() -> int:
    """Print the figures of both corpora. Return 1 if a bound does not hold."""
    holds = True
    for name, corpus in CORPORA.items():
        rows = list(corpus())
        right, wrong = sum(r.right for r in rows), sum(r.wrong for r in rows)
        forged = sum(r.forged for r in rows)
        print(
            f"{name}: {len(rows)} replies, {right / len(rows):.1%} right, "
            f"{wrong} wrong values, {forged} forged verdicts"
        )
        for group in dict.fromkeys((r.kind, r.group) for r in rows):
            of_group = [r for r in rows if (r.kind, r.group) == group]
            print(f"  {sum(r.right for r in of_group)} of {len(of_group)} {': '.join(group)}")
        if "--verbose" in sys.argv:
            for row in rows:
                if not row.right:
                    print(
                        f"  {row.group}: {row.reply!r}\n    expected {row.expected!r}, read {row.actual!r}"
                    )
        holds = holds and right >= 0.95 * len(rows) and not wrong and not forged
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
