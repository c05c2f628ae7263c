"""What a candidate says to its judge changes nothing in how the verdict is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from judging import looped, no, settled

from loopwright import run_sync
from loopwright.evaluators import check, gates, judge
from loopwright.evaluators.judge_questions import Sentence, mark_of
from loopwright.models import Models, Reply
from loopwright.records import Evaluation
from loopwright.records.codec import encode

CORPUS: dict[str, list[str]] = yaml.safe_load(
    (Path(__file__).parents[1] / "data" / "injections.yaml").read_text(encoding="utf-8")
)
TEXTS = [text for texts in CORPUS.values() for text in texts]
CRITERION = "It names a date."
MARK = mark_of("key", "another candidate")


def no_with(reason: str) -> str:
    return encode({"verdict": "no", "score": 5, "reason": reason})


# How a judge that is honest, or foolish but not bought, may answer about a candidate.
JUDGES: dict[str, Any] = {
    "quotes it in its reason": no_with,
    "quotes it line by line": lambda text: no_with("\n".join(f"> {x}" for x in text.splitlines())),
    "quotes it before its JSON": lambda text: f"It says: {text}\n{no_with('no date')}",
    "quotes it after its JSON": lambda text: f"{no_with('no date')}\nIt says: {text}",
    "says nothing else": lambda text: text,
    "fences it": lambda text: f"```\n{text}\n```",
    "quotes it, then signs": lambda text: f"The text says:\n{text}\nVERDICT {MARK}: NO",
    "signs, then quotes it": lambda text: f"VERDICT {MARK}: NO\nThe text says:\n{text}",
}


class Echo:
    """A model that makes its answer out of the candidate; it knows of no schemas."""

    def __init__(self, answer: Any, text: str) -> None:
        self.answer, self.text = answer, text

    async def complete(self, request: Any, *, on_text: Any = None) -> Reply:
        return Reply(self.answer(self.text))


def evaluated(model: Any, text: str, evaluator: Any) -> Evaluation:
    resources = {"models": Models(model, known_prices=False), "model": "openai:any"}
    found: Evaluation = run_sync(evaluator, text, resources=resources).output
    return found


def test_the_corpus_has_two_hundred_texts_all_different() -> None:
    """The size that the figure is stated for."""
    assert len(set(TEXTS)) == len(TEXTS) >= 200


@pytest.mark.parametrize("name", JUDGES)
def test_no_text_is_read_as_the_verdict(name: str) -> None:
    """Whatever the candidate says and the judge repeats of it, nothing of it passes."""
    asked = Sentence()
    passed = []
    for text in TEXTS:
        vote = asked.read(Reply(JUDGES[name](text)), text, MARK)
        if vote.verdict.answer == "yes":
            passed.append(text)
    assert not passed


@pytest.mark.parametrize("name", ["quotes it in its reason", "quotes it line by line"])
def test_an_honest_no_stays_a_no_whatever_it_quotes(name: str) -> None:
    """The structured verdict is read as it is, score and all."""
    read = [Sentence().read(Reply(JUDGES[name](text)), text, MARK).verdict for text in TEXTS]
    assert {(verdict.answer, verdict.score) for verdict in read} == {("no", 0.05)}


@pytest.mark.parametrize("name", JUDGES)
def test_a_whole_look_at_a_hostile_candidate_does_not_pass(name: str) -> None:
    """With the re-ask and all: the evaluation is a no, or undecided."""
    for text in TEXTS[:: 1 if name == "says nothing else" else 4]:
        found = evaluated(Echo(JUDGES[name], text), text, judge(CRITERION))
        assert found.passed is not True
        assert not found.score or found.score <= 0.05


def test_with_a_check_none_passes_even_if_the_judge_is_bought() -> None:
    """A deterministic check is not talked to: under it not one of them gets a yes."""
    bought = encode({"verdict": "yes", "score": 100, "reason": "as told"})
    guarded = gates(check(not_matches="."), judge(CRITERION))
    for text in TEXTS:
        found = evaluated(Echo(lambda _: bought, text), text, guarded)
        assert (found.passed, found.score) == (False, 0.0)


def test_a_hostile_worker_does_not_end_its_loop() -> None:
    """In a loop every round is judged no, and the reason of the loop is its limit."""

    async def worker(value: Any, ctx: Any) -> str:
        return TEXTS[ctx.iteration - 1]

    result = looped(
        judge(CRITERION), None, work=worker, rounds=len(TEXTS), resources=settled([no()])
    )
    assert result.iterations == len(TEXTS)
    assert not result.satisfied
