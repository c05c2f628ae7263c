"""GEPA as a step: its own optimiser, whose every case and every reflection is an effect of this run.

1. GEPA runs in a thread and proposes one text at a time. What it asks for is done here, in the task of the step.
2. Calls are numbered in the order in which GEPA asks for them, so that a resumed run finds them by number, and compares
   their content.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import count
from queue import SimpleQueue
from threading import Thread
from types import SimpleNamespace
from typing import Any

from .._extras import require
from ..datasets import Case, Dataset
from ..engine.composites import run_all
from ..engine.context import Context, Scope
from ..engine.functions import in_thread
from ..engine.step import (
    CompositeStep,
    EvaluatorLike,
    Step,
    StepLike,
    as_step,
    digest_of,
    fingerprinted,
)
from ..errors import ConfigurationError, StepError
from ..prompts import prompt
from ..records import Reason, Result, Status, as_evaluation, codec
from ..records.codec import Json

__all__ = ["gepa"]

AT_ONCE = 8  # cases that run at a time
INPUTS = "inputs"

Job = Callable[[], Coroutine[object, object, Any]]


class _EndedError(BaseException):
    """The step has ended. Not an Exception, because GEPA asks again after those of a reflection."""


def gepa(
    optimise: Mapping[str, str],
    run: StepLike,
    dataset: Dataset | Iterable[Case],
    evaluate: EvaluatorLike,
    *,
    max_metric_calls: int = 400,
    patience: int = 20,
    model: str | StepLike[str, str] = "",
    name: str = "gepa",
) -> Step[object, dict[str, str]]:
    """Make a step that improves texts by GEPA (Agrawal et al., 2025), and returns the best ones by their names.

    It ends after `max_metric_calls` cases, or after `patience` proposals without a better one. Each case and each
    reflection is a call of this run, with its budget, so that a resumed run repeats none of them.

    Args:
        optimise: the texts to begin with, by name.
        run: what a case does, as for `Loop`. Its input is an object of the texts and the `inputs` of the case.
        dataset: the cases. With splits, GEPA learns from `train` and scores with `validation`; without, both are all
            cases.
        evaluate: an evaluator of the output. Its score counts, else its verdict; GEPA reads its feedback.
        max_metric_calls: the cases after which no other proposal begins. Default: 400.
        patience: the proposals in a row without a better one that end it. Default: 20.
        model: the model that proposes texts, or a step from a prompt to its answer. Default: the model of the run.
        name: its name in paths. Default: "gepa".

    Returns:
        A step. A case that fails scores 0.

    Raises:
        ConfigurationError: for no text, no case, or a number below 1. Without the extra `gepa`, which brings the library.

    Example:
        >>> step = gepa({"prompt": "Answer."}, lambda value: value["inputs"], [Case("2 + 2", "4")], lambda output: 0.5)
        >>> step.name
        'gepa'
    """
    require("gepa", "gepa")
    texts = dict(optimise) if isinstance(optimise, Mapping) else {}
    if not texts or INPUTS in texts or not all(isinstance(text, str) for text in texts.values()):
        raise ConfigurationError(
            f"{name}: optimise: {optimise!r:.60}; give the texts to improve by name, none of them `{INPUTS}`"
        )
    data = dataset if isinstance(dataset, Dataset) else Dataset(dataset)
    splits = {split for split, size in data.splits.items() if size}
    learns = data.use("train") if "train" in splits else data.use()
    scores = data.use("validation") if "validation" in splits else learns
    if not len(learns):
        raise ConfigurationError(f"{name}: dataset: {data.name} has no case that is not held out")
    limits = {"max_metric_calls": max_metric_calls, "patience": patience}
    for key, value in limits.items():
        codec.integer(f"{name}: {key}", value, minimum=1)
    reflect = prompt("{{ value }}", model=model or ()) if isinstance(model, str) else as_step(model)
    evaluator = as_step(evaluate, purpose="evaluate")
    return Gepa(name, texts, as_step(run), evaluator, reflect, (learns, scores), limits)


class Gepa(CompositeStep[object, "dict[str, str]"]):
    """Texts that GEPA improves. See `gepa`."""

    noun = "gepa"

    def __init__(
        self,
        name: str,
        texts: dict[str, str],
        task: Step,
        evaluate: Step,
        reflect: Step,
        data: tuple[Dataset, Dataset],
        limits: Mapping[str, int],
    ) -> None:
        self.name, self.texts, self.data, self.limits = name, texts, data, limits
        self.task, self.evaluate, self.reflect = task, evaluate, reflect

    def parts(self) -> Iterable[Step]:
        return [self.task, self.evaluate, self.reflect]

    @fingerprinted
    def fingerprint(self) -> str:
        # Without the limits: a recorded run may resume with others.
        inner = [part.fingerprint for part in self.parts()]
        return digest_of("gepa", codec.canonical(self.texts), *inner, self.data[0].digest)

    async def run(self, value: Json, ctx: Context) -> Result:
        """Run GEPA over the calls on record, and go on."""
        from gepa.api import optimize as library
        from gepa.core.adapter import EvaluationBatch
        from gepa.utils import NoImprovementStopper

        optimize: Any = library  # its type knows no adapter that is not a class of its own
        questions: SimpleQueue[tuple[Job | None, Any]] = SimpleQueue()
        numbers, ended = count(1), False
        reply: Future[Any] = Future()

        # In the thread of GEPA.

        def ask(job: Job) -> Any:
            answer: Future[Any] = Future()
            questions.put((job, answer))
            return answer.result()

        def evaluated(batch: Sequence[Case], texts: dict[str, str], capture_traces: bool) -> Any:
            jobs = [
                partial(self._case, ctx, f"call-{next(numbers):04}", case, texts) for case in batch
            ]
            rows = ask(partial(run_all, jobs, AT_ONCE, count=ctx.run.count))
            outputs = [row["Generated Outputs"] for row in rows]
            return EvaluationBatch(outputs, [row.pop("score") for row in rows], rows)

        def optimised() -> None:
            found = None
            try:
                found = optimize(
                    self.texts,
                    *(list(part) for part in self.data),
                    adapter=SimpleNamespace(
                        evaluate=evaluated,
                        make_reflective_dataset=lambda texts, batch, names: dict.fromkeys(
                            names, batch.trajectories
                        ),
                        propose_new_texts=None,
                    ),
                    reflection_lm=lambda text: ask(
                        partial(ctx.call, f"call-{next(numbers):04}", self.reflect, text)
                    ),
                    max_metric_calls=self.limits["max_metric_calls"],
                    stop_callbacks=NoImprovementStopper(self.limits["patience"]),
                    logger=SimpleNamespace(log=lambda text: None),
                    seed=ctx.random.getrandbits(32),
                )
            except _EndedError:
                pass
            except Exception as error:  # of GEPA, of any kind
                found = StepError(f"GEPA ended by {error!r}", path=ctx.path, kind="gepa_failed")
            questions.put((None, found))

        def following() -> tuple[Job | None, Any]:
            job, reply = questions.get()
            if ended and job is not None:  # the step was cancelled while it waited here
                reply.set_exception(_EndedError())
            return job, reply

        # In the task of the step, so that limits, questions and cancellations act as in each step.
        Thread(target=optimised, name="loopwright gepa", daemon=True).start()
        try:
            while True:
                job, reply = await in_thread(following)
                if job is None:
                    break
                reply.set_result(await job())
        finally:
            ended = True
            if isinstance(reply, Future) and not reply.done():
                reply.set_exception(_EndedError())
        found: Any = reply
        if isinstance(found, StepError):
            raise found
        scores = found.val_aggregate_scores
        detail = f"{found.total_metric_calls} cases, score {scores[0]:.3g} at first, {max(scores):.3g} at last"
        return Result(
            Status.SATISFIED, Reason.COMPLETED, detail, found.best_candidate, name=self.name
        )

    async def _case(
        self, ctx: Context, name: str, case: Case, texts: dict[str, str]
    ) -> dict[str, Any]:
        """Run one case; return its score, and what GEPA reads about it."""
        owner, ctx = ctx.path, ctx.child(ctx.below(name))
        ctx.scope = scope = Scope(self.name, case.inputs, ctx.scope, ctx.path)
        scope.work_on(case.for_task())
        output: Json = None
        try:
            output = await ctx.call("run", self.task, {**texts, INPUTS: case.inputs})
            scope.work_on(case)
            judged = as_evaluation(await ctx.call("evaluate", self.evaluate, output, case.digest))
            score, feedback = judged.score, judged.feedback
        except StepError as error:
            score, feedback = 0.0, str(error)
            ctx.run.warn("cases that failed score 0", owner, code="gepa_case_failed")
        return {
            "Inputs": case.inputs,
            "Generated Outputs": output,
            "Feedback": feedback,
            "score": float(judged.passed is True) if score is None else score,
        }
