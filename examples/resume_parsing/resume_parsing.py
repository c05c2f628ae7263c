"""The same loop as resume_parsing.yaml, in Python, over any number of resumes.

python resume_parsing.py                                     all of resumes/, and how right they are
python resume_parsing.py FILE…                               what is found in these
LOOPWRIGHT_MODEL=openai:gpt-4o python resume_parsing.py      a model reads what the parsers cannot
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from measure import accuracy
from reading import read
from resume import FIELDS, judge
from strategies import STRATEGIES

from loopwright import Loop, Result, prompt, run_sync
from loopwright.recipes import strategy_loop

RESUMES = Path(__file__).parent / "resumes"
ASK = prompt(
    "Read this resume. Leave a field empty that it does not give; `to` is null for today.\n\n"
    "{{ value.text }}\n",
    schema=FIELDS,
)


def parsing(*, with_model: bool = False) -> Loop:
    """Return the loop: the three parsers in turn and, if there is one, a model after them."""
    strategies: dict[str, Any] = dict(STRATEGIES)
    if with_model:
        strategies["model"] = ASK
    return strategy_loop(strategies, judge, threshold=1.0, name="parsing")


def chosen(result: Result) -> str:
    """Return the strategy whose reading is the output."""
    assert result.best is not None
    return str(result.best.evaluation.votes[0]["strategy"])


def main(files: list[str]) -> None:
    """Read resumes and print what was found, or over all of them how right it is."""
    named = os.environ.get("LOOPWRIGHT_MODEL")
    loop = parsing(with_model=bool(named))
    if files:
        for file in files:
            result = run_sync(loop, read({"file": file}))
            print(f"{Path(file).name}: {chosen(result)}, {result.best.score:.2f}")
            for item in result.history:
                if item.error is not None:
                    print(f"  {item.error.path.rpartition('/')[2]}: {item.error.message}")
            print(json.dumps(result.output, indent=1, ensure_ascii=False))
        return
    measure(loop, RESUMES)
    print("\nand of forms that the parsers were not written for:\n")
    measure(loop, RESUMES / "unseen")


def measure(loop: Loop, folder: Path) -> None:
    """Print what the loop chooses for each resume and how right that is, then each strategy alone."""
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    scores: dict[str, list[float]] = {name: [] for name in (*STRATEGIES, "the loop")}
    for name, right in expected.items():
        resume = read({"file": str(folder / name)})
        result = run_sync(loop, resume)
        for strategy, parse in STRATEGIES.items():
            scores[strategy].append(accuracy(parse(resume), right))
        scores["the loop"].append(accuracy(result.output, right))
        told = f"{name:27} {chosen(result):19} {result.iterations} tried, score {result.best.score:.2f}"
        print(f"{told}, right {scores['the loop'][-1]:.2f}")
    print()
    for name, found in scores.items():
        whole = sum(score == 1 for score in found)
        mean = sum(found) / len(found)
        print(f"{name:19} right {mean:.3f}, wholly right {whole} of {len(found)}")


if __name__ == "__main__":
    main(sys.argv[1:])
