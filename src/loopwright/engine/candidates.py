"""Several candidates in one iteration: their runs, their order, and the choice, which is an effect of its own.

1. Candidate k runs at LOOP/N/candidate-k and is judged once. All have the input that adapt made, and do not see each
   other. An entry says that one has ended, so that a resume knows it without asking its steps.
2. LOOP/N/choice records the row of each candidate, with the chosen one. A replay asks for it first; if it is there, no
   other candidate is looked at. Otherwise ended candidates are taken by number, then `stop_rest` is asked, then new
   ones begin.
3. Merit: what a deterministic evaluator refused comes after the others; then passed first, then the objective or the
   score, then the lower number. A candidate without a value of the objective comes last.
4. The failure of a candidate is its own. A deadline or a cancellation cuts the iteration, whose output is then that of
   the best finished candidate. A question of one suspends the run when the others have ended.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..conditions import Budget, Condition, Passed, check_safely, has_goal
from ..errors import (
    BROKEN_EVALUATOR,
    ConfigurationError,
    StepError,
    Stopped,
    Suspended,
    nearest,
)
from ..journal import Entry
from ..journal.replay import RecordedRun
from ..records import (
    Candidate,
    Evaluation,
    Failure,
    History,
    Iteration,
    Reason,
    codec,
)
from ..records.codec import Json
from ..records.typed import Value, json_of
from .budgets import Account
from .composites import run_all
from .context import Context
from .files import Snapshots, StateSource
from .iteration import Attempt, settled
from .loop_options import MOST_CANDIDATES
from .step import Step, StepLike, as_step, digest_of, source_digest

if TYPE_CHECKING:
    from .loop import LoopRun  # it imports this module

__all__ = ["Candidates", "Combine", "Duel", "Round", "candidates_of", "count_of"]

AT_ONCE = 8  # candidates at a time, unless a loop says otherwise
PICKS = ("score", "first_pass", "ask")
POSITION = "judge_follows_position"  # the code of a warning
_PAIRS = 10  # pairs after which the warning may come
# Notes: limits on the number of effects do not count them.
_ENDED, _CHOICE, _PAIR = "note.candidate:1", "note.choice:1", "note.pair:1"


@dataclass(frozen=True, eq=False, repr=False)
class Duel(Value):
    """Let a judge compare the two best candidates of an iteration, in both orders.

    If both answers name one candidate, it is chosen; otherwise the better one by merit is.

    Args:
        judge: a step from `{first, second}` to `{winner}` or the winner alone: `first`, `second` or `tie`, such as
            `evaluators.pair_judge("Which title is more exact?")`.

    Example:
        >>> from loopwright import Candidates
        >>> Candidates(4, pick=Duel(lambda pair: "first")).n
        4
    """

    judge: StepLike[Any, Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "judge", as_step(self.judge))


@dataclass(frozen=True, eq=False, repr=False)
class Combine(Value):
    """Let a step make one more candidate of the eligible ones; merit decides among all.

    Args:
        step: a function or any step. Its input is the list of the eligible candidates, the best first, each
            `{number, output, score, feedback}`, with a workspace also `changes`, the difference of its files.

    Example:
        >>> from loopwright import Candidates
        >>> Candidates(4, pick=Combine(lambda parts: parts[0]["output"])).n
        4
    """

    step: StepLike[Any, Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "step", as_step(self.step))


@dataclass(frozen=True, eq=False, repr=False)
class Candidates(Value):
    """How many outputs each iteration of a loop makes, and which of them becomes its output.

    Args:
        n: the candidates of an iteration, from 1 to 1024.
        first: those of the first iteration of a loop and of each chain. Default: `n`.
        at_once: how many run at a time. Default: the smaller of their number and 8.
        vary: values of which candidate k sees the k-th, from the start again after the last, as `ctx.vary` and as
            `loop.vary` in templates. Default: none.
        pick: which one is chosen: the best by `score`, the `first_pass` that passed, by a `Duel`, with a `Combine`,
            `ask` for a person, or a function from a list of `Candidate` to a number. Default: `score`.
        stop_rest: a condition of success, such as `Passed()`, that ends the other candidates when one meets it.
            Default: all run to their end; for `first_pass`, `Passed()`.
        min_ok: the fewest candidates that must be neither failed nor undecided; else the iteration fails as
            `candidates_failed`. Default: 1.
        budget: a `Budget` of each candidate. Default: none.

    Raises:
        ConfigurationError: for an invalid value.

    Example:
        >>> from loopwright import Loop, run_sync
        >>> def guess(value: int, ctx) -> int:
        ...     return value + ctx.candidate
        >>> result = run_sync(Loop(guess, lambda n: n / 10, max_iterations=1, candidates=Candidates(3)), 1)
        >>> result.output, [one.state for one in result.history[0].candidates]
        (4, ['lost', 'lost', 'chosen'])
    """

    n: int
    first: int | None = field(default=None, kw_only=True)
    at_once: int | None = field(default=None, kw_only=True)
    vary: Sequence[Json] = field(default=(), kw_only=True)
    pick: str | Duel | Combine | Callable[[list[Candidate]], Any] = field(
        default="score", kw_only=True
    )
    stop_rest: Condition | None = field(default=None, kw_only=True)
    min_ok: int = field(default=1, kw_only=True)
    budget: Budget | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        put = functools.partial(object.__setattr__, self)
        for name in ("n", "first", "at_once", "min_ok"):
            value = getattr(self, name)
            if value is not None or name in ("n", "min_ok"):
                codec.integer(f"candidates: {name}", value, minimum=1, maximum=MOST_CANDIDATES)
        fewest = min(self.n, self.first or self.n)
        if self.min_ok > fewest:
            raise ConfigurationError(
                f"candidates: min_ok: {self.min_ok} is above the {fewest} candidates of an iteration"
            )
        if isinstance(self.vary, str) or not isinstance(self.vary, Sequence):
            raise ConfigurationError(
                f"candidates: vary: {self.vary!r:.60} is not a list; use one value for each candidate"
            )
        put("vary", tuple(codec.normalise(value, "vary") for value in self.vary))
        if isinstance(self.pick, str):
            if self.pick not in PICKS:
                raise ConfigurationError(
                    f"candidates: pick: {self.pick!r} is none of {', '.join(PICKS)}, a Duel, a Combine or a "
                    f"function{nearest(self.pick, PICKS)}"
                )
        elif self.step is None and not callable(self.pick):
            raise ConfigurationError(f"candidates: pick: {self.pick!r:.60} is not a function")
        if self.stop_rest is not None and not (
            isinstance(self.stop_rest, Condition) and has_goal(self.stop_rest)
        ):
            raise ConfigurationError(
                f"candidates: stop_rest: {self.stop_rest!r:.60} is not a condition of success, such as passed"
            )
        if self.pick == "first_pass" and self.stop_rest is None:
            put("stop_rest", Passed())
        if self.budget is not None and not isinstance(self.budget, Budget):
            raise ConfigurationError(
                f"candidates: budget: {self.budget!r:.60} is not a Budget; use Budget(usd=0.10)"
            )

    @property
    def most(self) -> int:
        """The most candidates of an iteration, without a combination."""
        return max(self.n, self.first or 0)

    def check_workspace(self, source: StateSource, loop: str) -> None:
        """Refuse a workspace of which there cannot be several.

        Raises:
            ConfigurationError: names the option.
        """
        if self.most > 1 and not source.copies:
            raise ConfigurationError(
                f"loop {loop}: candidates: {self.most} candidates cannot edit one folder; use a workspace of the kind copy",
                option="candidates",
            )

    @property
    def step(self) -> Step | None:
        """The judge of a duel, or the step that combines; None for another pick."""
        if isinstance(self.pick, Duel):
            return as_step(self.pick.judge)
        return as_step(self.pick.step) if isinstance(self.pick, Combine) else None

    def with_step(self, wrap: Callable[[Step], Step]) -> Candidates:
        """Return the same with its judge, or the step that combines, wrapped."""
        kind: Any = type(self.pick)
        return self if self.step is None else replace(self, pick=kind(wrap(self.step)))

    def fingerprint(self, written: Callable[[Condition], str]) -> str:
        """Return a digest of what decides the result: not of the number at a time."""
        word = self.pick if isinstance(self.pick, str) else type(self.pick).__name__
        rule = source_digest(self.pick) if callable(self.pick) else ""
        return digest_of(
            "candidates",
            f"{self.n} {self.first} {self.min_ok} {word} {rule} {self.budget!r}",
            codec.encode(list(self.vary)),
            "" if self.stop_rest is None else written(self.stop_rest),
            *([] if self.step is None else [self.step.fingerprint]),
        )

    def varied(self, number: int) -> Json:
        """Return what differs in a candidate, or None."""
        return self.vary[(number - 1) % len(self.vary)] if self.vary else None


def candidates_of(value: object) -> Candidates:
    """Return the declared candidates of a loop; a number is `n`.

    Raises:
        ConfigurationError: for another value.
    """
    if isinstance(value, Candidates):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return Candidates(value)
    raise ConfigurationError(
        f"loop: candidates: {value!r:.60} is not a number or Candidates(…); use candidates=4"
    )


def count_of(loop_run: LoopRun) -> int:
    """Return the number of candidates of the iteration that a loop has begun."""
    several, tuned, place = loop_run.loop.candidates, loop_run.run_state.tuned, loop_run.scope.place
    assert several is not None
    # That of its beginning, because a resume must begin the same ones.
    limits = {} if tuned is None else tuned.of(loop_run.path, loop_run.began)
    number: int = limits.get("candidates", several.n)
    begins = not loop_run.history if place is None else not place.own
    return (several.first or number) if begins else number


class _Ended:
    """A candidate that began, and once it has ended its record as that of an iteration."""

    __slots__ = ("attempt", "files", "item", "number", "refused", "skipped", "stop", "vary")

    def __init__(self, number: int, attempt: Attempt, vary: Json) -> None:
        self.number, self.attempt, self.vary = number, attempt, vary
        self.item: Iteration = Iteration(number)
        self.skipped = self.refused = False  # refused by a deterministic evaluator
        self.files: Snapshots | None = None  # its own, in a loop with a workspace
        self.stop: Stopped | None = None  # by a budget without headroom

    @property
    def merit(self) -> tuple[bool, bool, bool, bool, float, int]:
        """The key of its place among the others: the best one has the lowest."""
        item, rank = self.item, self.item.rank
        valued = rank is not None or item.accepted is None
        passed, best = item.passed is True, 0.0 if rank is None else -rank
        return not valued, self.refused, not passed, rank is None, best, self.number

    def row(self, state: str) -> Candidate:
        """Return its row in the record of the iteration."""
        item, evaluation = self.item, self.item.evaluation or Evaluation()
        return Candidate(
            self.number,
            state,
            evaluation.score,
            evaluation.passed,
            dict(evaluation.metrics),
            evaluation.feedback,
            item.error,
            self.vary,
            item.usage,
            round(item.seconds, 6),
            self.attempt.ctx.path,
        )


class Round:
    """The candidates of one iteration. `ended` has those that ended, by number; `cut` is what ended them all early.

    Args:
        loop_run: the run of the loop.
        attempt: the iteration, with its input; it gets the chosen candidate.
        count: the number of candidates.
        inputs: the input of each candidate. Default: that of the iteration.
    """

    def __init__(
        self, loop_run: LoopRun, attempt: Attempt, count: int, inputs: Sequence[Json] | None
    ) -> None:
        assert loop_run.loop.candidates is not None
        self.loop_run, self.attempt, self.count, self.inputs = loop_run, attempt, count, inputs
        self.loop, self.options = loop_run.loop, loop_run.loop.candidates
        self.run_state, self.ctx, self.path = loop_run.run_state, attempt.ctx, attempt.ctx.path
        # In a run that replays nothing, an index without entries.
        self.replay = loop_run.run_state.replay or RecordedRun(())
        # A budget of the candidate needs the calls that ask each account.
        self.call = Context.call if self.options.budget is not None else attempt.call
        self.ended: dict[int, _Ended] = {}
        self.begun: dict[int, _Ended] = {}
        self.cut: Stopped | None = None
        self.met = False  # whether stop_rest was
        self.lanes: set[int] = set()  # of the candidates that run

    async def run(self) -> None:
        """Run the candidates, choose one and record the choice; or take the recorded choice.

        Raises:
            StepError: if too few candidates are eligible, or the choice failed.
            Stopped: if a limit ended the iteration; it has the best finished candidate.
            Suspended: if a person has to answer first.
        """
        if (choice := self.replay.finished.get(f"{self.path}/choice")) is not None:
            await self._replayed(Candidate.listed(choice.value))
            return
        try:
            await self._run_all()
            self._check_enough()
            self.attempt.stage = "choice"
            number = await self._chosen()
        except (Stopped, asyncio.CancelledError):
            self._take_best()
            raise
        except StepError:
            self.attempt.candidates = self._rows(0)
            raise
        rows = self._rows(number)
        self._note("choice", [row.to_json() for row in rows], _CHOICE)
        await self._take(self.ended[number], rows)

    async def _replayed(self, rows: tuple[Candidate, ...]) -> None:
        """Take the recorded choice: only the chosen candidate is replayed."""
        chosen = next(row.number for row in rows if row.state == "chosen")
        if chosen > self.count:  # of a combination, the input is needed too
            for row in rows[: self.count]:
                if row.state in ("lost", "failed"):
                    await self._execute(row.number)
            await self._combine()
        else:
            await self._execute(chosen)
        await self._take(self.ended[chosen], rows)

    async def _run_all(self) -> None:
        """Run the candidates: those that had ended before a crash by number, then the others, several at a time."""
        numbers = range(1, self.count + 1)
        for number in numbers:
            if self._place(number) in self.replay.finished:
                await self._execute(number)
        left = [number for number in numbers if number not in self.ended]
        if left and not self._over():
            run, key = self.run_state, f"{self.path}/candidates/"
            if not run.silent:
                run.open_loops[key] = self
            try:
                await run_all(
                    [functools.partial(self._execute, number) for number in left],
                    self.options.at_once or min(self.count, AT_ONCE),
                    over=self._over,
                    count=run.count,
                )
            except Suspended:
                # What ended the others has priority over one that waits for a person.
                if not self._over():
                    raise
            finally:
                if not run.silent:
                    run.open_loops.pop(key, None)
        if self.cut is not None:
            raise self.cut

    def tune(self, limits: Mapping[str, Json]) -> None:
        """Do nothing: a new number of candidates counts from the next iteration on."""

    def refresh(self) -> None:
        """Read the budgets above again, for each candidate that runs."""
        for one in self.begun.values():
            one.attempt.ctx.account.refresh()

    def _over(self) -> bool:
        return self.met or self.cut is not None

    def _place(self, number: int) -> str:
        return f"{self.path}/candidate-{number}"

    async def _execute(self, number: int, step: Step | None = None, value: Json = None) -> None:
        """Execute and evaluate one candidate; `step` and `value` are those of a combination."""
        loop, run, path = self.loop, self.run_state, self._place(number)
        known, began = self.replay.finished.get(path), self.replay.began(path)
        files, combines = self.loop_run.snapshots, step is not None
        vary = None if combines else self.options.varied(number)
        if step is None:
            step, value = loop.execute, self.attempt.input
        ctx = self._context(number, path, vary)
        assert ctx.scope is not None
        attempt = Attempt(ctx, value, run.now() if began is None else began, False, self.call)
        if self.inputs is not None and not combines:
            attempt.adapted(self.inputs[number - 1])
        one = self.begun[number] = _Ended(number, attempt, vary)
        lane = next(lane for lane in itertools.count() if lane not in self.lanes)
        self.lanes.add(lane)
        try:
            if began is None and ctx.account.capped:
                ctx.account.admit()
            if files is not None:
                name = path.rpartition("/")[2]
                one.files = await files.branch(
                    self.ctx.iteration, name, lane, ended=known is not None
                )
                ctx.scope.work_in(one.files)
            output = await self.call(ctx, "execute", step, attempt.input)
            attempt.executed(step, self._checked(output, path, step))
            if loop.evaluate is not None:
                attempt.evaluated(await self.call(ctx, "evaluate", loop.evaluate, attempt.output))
                if attempt.evaluation is not None and attempt.evaluation.undecided:
                    attempt.evaluation = settled(self.loop_run, attempt)
        except (StepError, Stopped) as error:
            attempt.failed(error)
        finally:
            self.lanes.remove(lane)
            if one.files is not None and known is None:
                await one.files.remove()
        if (cut := attempt.cut) is not None and cut.stop.reason is Reason.BUDGET:
            # Without headroom, the others go on with what is left.
            one.stop = cut
            one.skipped = began is None and not (ctx.account.effects or ctx.account.settled)
            attempt.failure = Failure(attempt.stage, "budget", cut.stop.detail, path, False)
            attempt.cut = cut = None
        self._end(one, known)
        self.cut = self.cut or cut
        if cut is None and not one.skipped and known is None and not run.silent:
            entry = Entry("finished", path, attempt.began, None, _ENDED)
            entry.seconds = one.item.seconds
            run.append(entry)

    def _context(self, number: int, path: str, vary: Json) -> Context:
        """Return the context of a candidate."""
        around, spent = self.ctx, self.replay.spent(path)
        account = Account(path, around.account, self.options.budget, spent)
        account.iteration_usage = spent
        scope = self.attempt.scope.of_candidate(number, vary)
        return Context(self.run_state, path, around.gate, account, scope)

    def _checked(self, output: Json, path: str, step: Step) -> Json:
        """Return an output; a combination must have the type that `execute` declares."""
        declared = None if step is self.loop.execute else self.loop.execute.output_type
        if declared is not None and (problem := declared.check(json_of(output))):
            raise StepError(
                f"{path}: the combination is not a {declared.name}: {problem}",
                path=path,
                kind="bad_output",
                retryable=False,
            )
        return output

    def _end(self, one: _Ended, known: Entry | None) -> None:
        """Keep a candidate that has ended, with the order of the loop; `known` says how long it took before."""
        loop, attempt, metrics = self.loop, one.attempt, self.loop.measured
        item = attempt.iteration()
        seconds = item.seconds if known is None else known.seconds
        files = None if one.files is None else one.files.current
        item = replace(item, seconds=seconds, files=files)
        if metrics is not None:
            item = metrics.judged(item, self.loop_run.history, self.loop_run.scope.baseline)
        one.item = item
        if loop.evaluate is not None and item.evaluation is not None:
            asked = loop.evaluate.asks_model
            one.refused = (attempt.scope.checked if asked else item.passed) is False
        self.ended[one.number] = one
        rule = self.options.stop_rest
        if rule is not None and item.eligible:
            self.met = self.met or check_safely(rule, History([item])) is not None

    def _eligible(self) -> list[_Ended]:
        """Return the eligible candidates, the best first."""
        found = [one for one in self.ended.values() if one.item.eligible]
        return sorted(found, key=lambda one: one.merit)

    def _check_enough(self) -> None:
        """Raise the error of an iteration with too few eligible candidates."""
        ok, least = len(self._eligible()), min(self.options.min_ok, self.count)
        if ok >= least or self.met or (not ok and self._unsettled() is not None):
            return
        failed = [self.ended[number] for number in sorted(self.ended)]
        errors = [one.item.error for one in failed if one.item.error is not None]
        first = next((error for error in errors if error.kind == BROKEN_EVALUATOR), None)
        if first is not None:
            self.attempt.stage = first.stage
            # Of the iteration, which is what a retry of the run repeats.
            raise replace(first, path=self.path).to_error()
        # A budget around the candidates ended all that are missing.
        stops = {one.number: one.stop for one in failed if not one.item.eligible}
        above = [s for n, s in stops.items() if s is not None and s.owner != self._place(n)]
        if above and len(above) == len(stops):
            raise above[0]
        # Equal errors once: a thousand candidates often fail alike.
        alike: dict[str, list[int]] = {}
        for one in failed:
            if not one.item.eligible:
                alike.setdefault(_why(one.item), []).append(one.number)
        each = "; ".join(
            f"candidate{'s' * (len(found) > 1)} {', '.join(map(str, found))}: {text}"
            for text, found in alike.items()
        )
        cause = next((one.attempt.cause for one in failed if one.attempt.cause is not None), None)
        raise StepError(
            f"{ok} of {self.count} candidates are eligible, and at least {least} must be; {each}",
            path=self.path,
            kind="candidates_failed",
            retryable=any(error.retryable for error in errors),
        ) from cause

    def _unsettled(self) -> int | None:
        """Return the first candidate that is undecided or rejected: the loop has rules for those."""
        return min((n for n, one in self.ended.items() if one.item.error is None), default=None)

    async def _chosen(self) -> int:
        """Return the number of the chosen candidate."""
        eligible, pick = self._eligible(), self.options.pick
        best = eligible[0].number if eligible else self._unsettled()
        assert best is not None
        if len(eligible) < 2:
            return best
        if pick == "first_pass":
            return min((one.number for one in eligible if one.item.passed), default=best)
        if pick == "ask":
            return self._asked(eligible)
        if isinstance(pick, Combine):
            await self._combine()
            if self.cut is not None:
                raise self.cut
            return self._eligible()[0].number
        # A judge or a rule does not outvote a deterministic evaluator.
        admitted = [one for one in eligible if one.refused == eligible[0].refused]
        if isinstance(pick, Duel):
            return await self._duel(pick, admitted)
        if callable(pick):
            return await self._picked(pick, admitted)
        return best

    async def _combine(self) -> None:
        """Make one more candidate of the eligible ones."""
        eligible = self._eligible()
        value = [self._shown(one) for one in eligible]
        for one, shown in zip(eligible, value, strict=True):
            if one.files is not None:
                shown["changes"] = await one.files.changes(own=True)
        await self._execute(self.count + 1, self.options.step, value)

    def _shown(self, one: _Ended) -> dict[str, Json]:
        """Return a candidate as a step or a person sees it."""
        item = one.item
        return {
            "number": one.number,
            "output": json_of(item.output),
            "score": item.score,
            "feedback": item.feedback,
        }

    def _asked(self, eligible: Sequence[_Ended]) -> int:
        """Return the number that a person chose.

        Raises:
            Suspended: until there is an answer.
        """
        shown = [self._shown(one) for one in sorted(eligible, key=lambda one: one.number)]
        request: dict[str, Json] = {
            "kind": "choice", "loop": self.loop_run.path, "iteration": self.ctx.iteration,
            "candidates": shown, "best": eligible[0].number,
        }  # fmt: skip
        detail = f"{self.loop.name}: which of the {len(shown)} candidates of iteration {self.ctx.iteration}?"
        answer = self.run_state.ask(f"{self.path}/choice", request, detail)
        number = answer.get("pick") if isinstance(answer, Mapping) else answer
        # The rule of a dry run can be any value.
        return number if number in [one.number for one in eligible] else eligible[0].number

    async def _picked(
        self, pick: Callable[[list[Candidate]], Any], eligible: Sequence[_Ended]
    ) -> int:
        """Return the number that a function of the user chose."""
        rows = sorted((one.row("lost") for one in eligible), key=lambda row: row.number)
        try:
            number = pick(rows)
            if inspect.isawaitable(number):
                number = await number
        except Exception as error:
            raise self.run_state.failure(error, f"{self.path}/choice").to_error() from error
        numbers = [row.number for row in rows]
        if isinstance(number, bool) or number not in numbers:
            raise StepError(
                f"{self.path}/choice: pick returned {number!r:.60}, which is none of the candidates "
                f"{', '.join(map(str, numbers))}; return the number of one",
                path=f"{self.path}/choice",
                kind="bad_choice",
                retryable=False,
            )
        return int(number)

    async def _duel(self, pick: Duel, eligible: Sequence[_Ended]) -> int:
        """Return the number of the better of the two best: that of the judge if it says the same in both orders."""
        best = eligible[0].number
        if len(eligible) == 1:
            return best
        pair = sorted(eligible[:2], key=lambda one: one.number)
        a, b = (json_of(one.item.output) for one in pair)
        place = f"choice/pair-{pair[0].number}-{pair[1].number}"
        answers = []
        try:
            for order, value in (
                ("ab", {"first": a, "second": b}),
                ("ba", {"first": b, "second": a}),
            ):
                said = await Context.call(self.ctx, f"{place}/{order}", as_step(pick.judge), value)
                answers.append(_winner(said, f"{self.path}/{place}/{order}"))
        except Stopped as stop:
            if stop.stop.reason is not Reason.BUDGET:
                raise
            return best  # nothing is left for the judge
        self._watch_position(answers, place)
        if answers == ["first", "second"]:
            return pair[0].number
        return pair[1].number if answers == ["second", "first"] else best

    def _watch_position(self, answers: Sequence[str | None], place: str) -> None:
        """Record both answers of a judge, and warn of one that names a position, whatever is there."""
        loop_run = self.loop_run
        if loop_run.duels is None:
            loop_run.duels = {
                path: _turns((entry.value["ab"], entry.value["ba"]))
                for path, entry in self.replay.finished.items()
                if entry.fingerprint == _PAIR and path.startswith(f"{loop_run.path}/")
            }
        duels = loop_run.duels
        duels[f"{self.path}/{place}"] = _turns(answers)
        self._note(place, {"ab": answers[0], "ba": answers[1]}, _PAIR)
        if len(duels) >= _PAIRS and 2 * sum(duels.values()) > len(duels):
            self.run_state.warn(
                "the judge follows the position: in more than half of the pairs it named the same position in both "
                "orders, so merit decided; use another criterion or model, or pick: score",
                loop_run.path,
                code=POSITION,
            )

    def _note(self, name: str, value: Json, fingerprint: str) -> None:
        """Record a value below the iteration."""
        run, path = self.run_state, f"{self.path}/{name}"
        if not run.silent and path not in self.replay.finished:
            run.append(Entry("finished", path, run.now(), run.clean(value), fingerprint))

    def _rows(self, chosen: int) -> tuple[Candidate, ...]:
        """Return the row of each candidate."""
        last = max([self.count, *self.ended])
        rows = [self._row(number, chosen) for number in range(1, last + 1)]
        return (*rows[: self.count], *(replace(row, combined=True) for row in rows[self.count :]))

    def _row(self, number: int, chosen: int) -> Candidate:
        path = self._place(number)
        if (one := self.ended.get(number)) is not None and one.attempt.cut is None:
            failed = "skipped" if one.skipped else "failed"
            state = "lost" if one.item.error is None else failed
            return one.row("chosen" if number == chosen else state)
        if (one := self.begun.get(number)) is not None:
            account, seconds = one.attempt.ctx.account, self.run_state.now() - one.attempt.began
            one.item = replace(one.item, usage=account.iteration_usage, seconds=seconds)
            return one.row("stopped")
        state = "skipped" if self.replay.began(path) is None else "stopped"
        vary, usage = self.options.varied(number), self.replay.spent(path)
        return Candidate(number, state, vary=vary, usage=usage, path=path)

    def _take_best(self) -> None:
        """Let a cut iteration have the best finished candidate, or what is left of one."""
        self.attempt.candidates = self._rows(0)
        others = [one for one in self.ended.values() if one.item.output is not None]
        found = [*self._eligible(), *sorted(others, key=lambda one: one.number)]
        if found:
            self._adopt(found[0], self._rows(found[0].number if found[0].item.eligible else 0))

    async def _take(self, chosen: _Ended, rows: tuple[Candidate, ...]) -> None:
        """Let the iteration have the chosen candidate; the sentences of `until` are asked about its files."""
        self._adopt(chosen, rows)
        files = self.loop_run.snapshots
        if files is not None and self.loop.sentences:
            await files.show(files.current)

    def _adopt(self, chosen: _Ended, rows: tuple[Candidate, ...]) -> None:
        attempt, inner = self.attempt, chosen.attempt
        attempt.candidates = rows
        if chosen.number <= self.count:  # the input of a combination is the candidates
            attempt.input = inner.input
        attempt.output = inner.output
        attempt.evaluation, attempt.stage = inner.evaluation, "evaluate"
        attempt.scope.adopt(inner.scope)
        if chosen.files is not None and chosen.files.current is not None:
            assert self.loop_run.snapshots is not None
            self.loop_run.snapshots.replace(chosen.files.current)


def _winner(said: Json, path: str) -> str | None:
    """Return the winner that a judge named; None if it could not be read."""
    winner = said.get("winner") if isinstance(said, Mapping) else said
    if winner is None or winner in ("first", "second", "tie"):
        return winner
    raise StepError(
        f"{path}: the judge returned {winner!r:.60}; expected first, second or tie",
        path=path,
        kind="bad_choice",
        retryable=False,
    )


def _turns(answers: Sequence[str | None]) -> bool:
    """Return whether both answers name the same position."""
    return answers[0] == answers[1] and answers[0] in ("first", "second")


def _why(item: Iteration) -> str:
    """Return why a candidate is not eligible."""
    if item.error is not None:
        return item.error.message
    if item.undecided:
        return f"undecided: {item.feedback}" if item.feedback else "undecided"
    return "rejected" if item.rejected else "incomplete"
