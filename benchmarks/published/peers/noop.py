"""The no-op contest of `benchmarks/published/noop_contest.py` with GEPA and OpenEvolve, in an environment of their own.

A candidate is a text with the sum of the effects so far. A proposal has no effect, or in one of five cases the effect of the
regime, as in our own runs. Each engine has its default settings, 100 proposals, and the same noise.

    python noop.py gepa|openevolve RUNS
"""

from __future__ import annotations

import json
import logging
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import Any

PROPOSALS, SHARE = 100, 0.2
EFFECTS = (0.0, 1.0, 2.0, 3.0)
Row = dict[str, Any]


def proposed(draw: random.Random, effect: float) -> float:
    """Return the effect of a proposal, in standard deviations of one evaluation."""
    return effect if draw.random() < SHARE else 0.0


def gepa(seed: int, effect: float, cases: int) -> Row:
    """Return how a run of GEPA ended."""
    import gepa as engine
    from gepa.core.adapter import EvaluationBatch

    draw, count, offered = random.Random(f"{seed} {effect} {cases}"), 0, 0

    class Adapter:
        def evaluate(
            self, batch: list[int], candidate: dict[str, str], capture_traces: bool = False
        ) -> Any:
            # The mean over all cases has the standard deviation 1, so one case has the square root of their number.
            true = float(candidate["text"].split()[0])
            scores = [true + draw.gauss(0, cases**0.5) for _ in batch]
            traces = list(scores) if capture_traces else None
            return EvaluationBatch(outputs=list(scores), scores=scores, trajectories=traces)

        def make_reflective_dataset(self, candidate: Any, evaluated: Any, names: list[str]) -> Any:
            return {name: [{"score": score} for score in evaluated.scores] for name in names}

        propose_new_texts = None

    def propose(candidate: dict[str, str], dataset: Any, names: list[str]) -> dict[str, str]:
        nonlocal count, offered
        count += 1
        gain = proposed(draw, effect)
        offered += gain > 0
        return {"text": f"{float(candidate['text'].split()[0]) + gain} {count}"}

    data = list(range(cases))
    result = engine.optimize(
        seed_candidate={"text": "0.0 0"},
        trainset=data,
        valset=data,
        adapter=Adapter(),
        custom_candidate_proposer=propose,
        stop_callbacks=lambda state: count >= PROPOSALS,
        skip_perfect_score=False,
        seed=seed,
        logger=type("Quiet", (), {"log": staticmethod(lambda *_: None)})(),
    )
    best = result.best_idx
    true = float(result.candidates[best]["text"].split()[0])
    claimed = result.val_aggregate_scores[best]
    return {
        "claims": best != 0,
        "claimed": claimed - result.val_aggregate_scores[0],
        "true": true,
        "offered": offered,
        "evaluations": result.total_metric_calls / cases,
    }


class _Model(BaseHTTPRequestHandler):
    """A scripted model behind the API of OpenAI: it answers with a changed program."""

    draw = random.Random(0)
    effect = 0.0
    count = offered = 0
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = body["messages"][-1]["content"]
        # The current program is the last one that the prompt shows.
        true = float(text.rsplit("quality = ", 1)[1].split()[0])
        kind = type(self)
        kind.count += 1
        gain = proposed(kind.draw, kind.effect)
        kind.offered += gain > 0
        code = f"# EVOLVE-BLOCK-START\nquality = {true + gain}\nnumber = {kind.count}\n# EVOLVE-BLOCK-END"
        message = {"role": "assistant", "content": f"```python\n{code}\n```"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        reply = {
            "id": "1", "object": "chat.completion", "created": 0, "model": "scripted",
            "choices": [choice], "usage": usage,
        }  # fmt: skip
        data = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


EVALUATOR = """
import random
def evaluate(path):
    names = {{}}
    exec(open(path).read(), names)
    draw = random.Random(f"{seed} {{names['number']}}")
    return {{"combined_score": names["quality"] + draw.gauss(0, 1)}}
"""


def openevolve(seed: int, effect: float, cases: int) -> Row:
    """Return how a run of OpenEvolve ended; the mean over cases is one evaluation for it."""
    from openevolve import run_evolution
    from openevolve.config import Config, LLMModelConfig

    class Model(_Model):
        """The model of this run."""

    Model.draw, Model.effect = random.Random(f"{seed} {effect} {cases}"), effect
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    logging.disable(logging.CRITICAL)
    try:
        with tempfile.TemporaryDirectory() as folder:
            evaluator = Path(folder, "evaluator.py")
            evaluator.write_text(EVALUATOR.format(seed=seed))
            # Without the language the word after the backticks stays in each program: every evaluation fails, and
            # is tried again after a second, three times.
            config = Config(
                max_iterations=PROPOSALS, random_seed=seed, diff_based_evolution=False, language="python"
            )  # fmt: skip
            config.llm.models = [
                LLMModelConfig(
                    name="scripted", api_key="none", temperature=0.0, max_tokens=1000, timeout=30,
                    retries=1, retry_delay=1, api_base=f"http://127.0.0.1:{server.server_address[1]}/v1",
                )
            ]  # fmt: skip
            config.llm.evaluator_models = config.llm.models
            config.evaluator.parallel_evaluations = 1
            first = "# EVOLVE-BLOCK-START\nquality = 0.0\nnumber = 0\n# EVOLVE-BLOCK-END\n"
            done = run_evolution(
                first, str(evaluator), config, iterations=PROPOSALS, output_dir=f"{folder}/out"
            )
            names: Row = {}
            exec(done.best_code, names)
    finally:
        server.shutdown()
        server.server_close()
    begun = random.Random(f"{seed} 0").gauss(0, 1)
    return {
        "claims": names["number"] != 0,
        "claimed": done.best_score - begun,
        "true": names["quality"],
        "offered": Model.offered,
        "evaluations": Model.count,
    }


ENGINES = {"gepa": gepa, "openevolve": openevolve}


def rows(name: str, runs: int) -> Iterator[Row]:
    """Iterate over a row for each number of cases and effect."""
    for cases in (1, 20) if name == "gepa" else (1,):
        for effect in EFFECTS:
            began = time.monotonic()
            ended = [ENGINES[name](seed, effect, cases) for seed in range(runs)]
            yield {
                "engine": f"{name} {version(name)}",
                "date": time.strftime("%Y-%m-%d"),
                "cases": cases,
                "effect": effect,
                "runs": runs,
                "claims": sum(row["claims"] for row in ended),
                "offered": sum(row["offered"] for row in ended) if effect else 0,
                "kept": round(sum(row["true"] for row in ended) / effect) if effect else 0,
                "bias": round(
                    statistics.fmean(
                        row["claimed"] - row["true"] for row in ended if row["claims"]
                    ),
                    3,
                ),
                "evaluations": sum(row["evaluations"] for row in ended),
                "minutes": round((time.monotonic() - began) / 60, 2),
            }


if __name__ == "__main__":
    os.environ.setdefault("TQDM_DISABLE", "1")
    for found in rows(sys.argv[1], int(sys.argv[2])):
        print(json.dumps(found), flush=True)
