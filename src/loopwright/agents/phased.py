"""The phased agent: planning, execution and refinement, each a loop with its own limit, and the presets of limits.

1. One iteration of a phase is one iteration of the agent: both counters increase by one.
2. After a phase that is done, or at its limit, the next phase follows. The agent ends after refinement.
3. The limits of the agent, a confident answer and a capability end it in any phase. A limit is a result
   with the best answer so far.

The presets are the defaults of the phased agent's format: limits by role and by the complexity of a task.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from ..conditions import CEILING
from ..engine.context import Context
from ..engine.step import (
    CompositeStep,
    EvaluatorLike,
    Step,
    StepLike,
    as_step,
    digest_of,
    fingerprinted,
)
from ..errors import ConfigurationError, LoopwrightWarning, nearest
from ..models.protocol import DEFAULT_MAX_TOKENS
from ..prompts.prompt import Prompt
from ..records import Iteration, Result, codec
from ..records.codec import Json
from .capabilities import Tools, checked, fingerprint_of
from .phased_run import PHASES, PhasedRun

__all__ = [
    "COMPLEXITIES",
    "ROLES",
    "PhasedAgent",
    "effective",
    "preset",
]

BUDGET_TOO_SMALL = "budget_too_small"
PHASES_CAPPED = "phases_capped"
TOKEN_SPLIT = (0.1, 0.4, 0.5)  # the shares of planning, execution and refinement
_BUFFER = 0.1  # a share of the sum of the phases, at least one iteration, as the format defines
_LIMITS = tuple(f"max_{phase}_iterations" for phase in PHASES)


def _limits(*limits: int) -> dict[str, float]:
    return dict(zip(_LIMITS, limits, strict=True))


ROLES: Mapping[str, Mapping[str, float]] = MappingProxyType({
    "base": _limits(2, 3, 1),
    "qa_specialist": _limits(1, 5, 2),
    "coordinator": _limits(2, 3, 1),
    "financial_analyst": _limits(2, 3, 1),
    "risk_analyst": _limits(2, 3, 1),
})  # fmt: skip
COMPLEXITIES: Mapping[str, Mapping[str, float]] = MappingProxyType({
    "low": {**_limits(1, 1, 1), "max_duration_seconds": 120.0},
    "medium": {},  # the limits of the role
    "high": {**_limits(2, 3, 2), "max_duration_seconds": 300.0},
})  # fmt: skip


def preset(role: str, complexity: str) -> dict[str, float]:
    """Return the defaults of a role, replaced by those of a task's complexity.

    Raises:
        ConfigurationError: For an unknown name, with the nearest valid one.
    """
    defaults = dict(ROLES["base"])
    tables = (("preset", role, ROLES), ("task_complexity", complexity, COMPLEXITIES))
    for setting, name, table in tables:
        if name and name not in table:
            hint = nearest(name, table) or f"; use one of {', '.join(table)}"
            raise ConfigurationError(f"phased agent: {setting}: {name!r} is unknown{hint}")
        defaults |= table[name] if name else {}
    return defaults


def effective(total: int, explicit: int | None) -> int:
    """Return `max_iterations_effective`: the explicit limit, or the sum of the phases plus a tenth, at least one."""
    return explicit if explicit is not None else total + max(1, int(total * _BUFFER))


@dataclass(frozen=True)
class PhasedAgent(CompositeStep):
    """An agent that plans, executes and refines. Each phase is a step or a prompt.

    The input of a phase is an object: `phase`, `input` (the input of the agent), `plan` (the output of
    planning), `results` (the list of outputs of execution), and from its second iteration on `previous`,
    `feedback` and `improvements`. Prompts also have the names `task`, `plan` and `results`. The members
    `done`, `next_phase`, `confidence`, `plan` and `answer` of a phase's output are read. An input with a
    `plan` skips planning.

    The agent is a step: pass it to `run`, or use it in a loop or workflow. Its output is the answer of the
    last phase that has one. `Result.agents[name]` reports the iterations by phase, the last phase, the
    limits and the reason of the end.

    Args:
        planning, execution, refinement: The step of one iteration of the phase. A phase without a step,
            or with a limit of 0, is skipped. Default: no step.
        name: The name in paths and reports, without a slash. Default: `agent`.
        evaluate: The evaluator of execution and refinement, or a mapping from a phase to its evaluator.
            Its score is the confidence, from 0 to 1. Default: none.
        preset: A role of `ROLES`, whose limits are the defaults. Default: `base`.
        task_complexity: `low`, `medium` or `high`. Its limits replace those of the role. Default: none.
        max_iterations: The limit of the agent in iterations. Default: the sum of the phases plus a tenth,
            at least one.
        max_planning_iterations, max_execution_iterations, max_refinement_iterations: The limit of the
            phase in iterations. Default: that of the preset.
        max_duration_seconds: The active seconds of the agent, after which a running call is cancelled.
            Default: that of `task_complexity`, otherwise none.
        enable_dynamic_termination: Whether a confident answer ends the agent: a score of at least
            `min_confidence_threshold`, or a verdict that it passed. Without an evaluator, the `confidence`
            in the output of the phase counts. Default: False.
        min_confidence_threshold: The confidence from 0 to 1. Default: 0.8.
        reserve_refinement: The iterations that are reserved for refinement; True is 1. Default: 0.
        token_budget: The tokens of the agent, divided by `token_split`. Default: no limit.
        token_split: The shares of the three phases. Default: 0.1, 0.4, 0.5.
        token_rollover: Whether a phase may use the remaining tokens of earlier phases. Default: False.
        capabilities: Extensions, see `Capability`. Default: none.
        tools: The tools of a prompt as `execution`. Default: none.
        tools_per_iteration: The maximum of replies with tool calls in one iteration. Default: 8.
        max_tool_calls_per_reply: The maximum of calls in one reply. Default: 128.
        on_failure, max_retries: As in `Loop`, for the loop of each phase. Default: `halt`, 2.
        on_iteration: Called with each iteration of every phase, numbered over all phases. Default: none.

    Returns:
        A step.

    Raises:
        ConfigurationError: For invalid or contradictory settings.

    Example:
        >>> from loopwright import PhasedAgent, run_sync
        >>> def plan(state):
        ...     return "1. write 2. check"
        >>> def work(state):
        ...     return {"done": True, "answer": state["input"].upper()}
        >>> agent = PhasedAgent(plan, work, max_planning_iterations=1)
        >>> run_sync(agent, "a title").output
        'A TITLE'
    """

    planning: StepLike | None = None
    execution: StepLike | None = None
    refinement: StepLike | None = None
    name: str = field(default="agent", kw_only=True)
    evaluate: EvaluatorLike | Mapping[str, EvaluatorLike] | None = field(default=None, kw_only=True)
    preset: str = field(default="", kw_only=True)
    task_complexity: str = field(default="", kw_only=True)
    max_iterations: int | None = field(default=None, kw_only=True)
    max_planning_iterations: int | None = field(default=None, kw_only=True)
    max_execution_iterations: int | None = field(default=None, kw_only=True)
    max_refinement_iterations: int | None = field(default=None, kw_only=True)
    max_duration_seconds: float | None = field(default=None, kw_only=True)
    enable_dynamic_termination: bool = field(default=False, kw_only=True)
    min_confidence_threshold: float = field(default=0.8, kw_only=True)
    reserve_refinement: int = field(default=0, kw_only=True)
    token_budget: int | None = field(default=None, kw_only=True)
    token_split: tuple[float, float, float] = field(default=TOKEN_SPLIT, kw_only=True)
    token_rollover: bool = field(default=False, kw_only=True)
    capabilities: Sequence[object] = field(default=(), kw_only=True)
    tools: Sequence[object] = field(default=(), kw_only=True)
    tools_per_iteration: int = field(default=8, kw_only=True)
    max_tool_calls_per_reply: int | None = field(default=None, kw_only=True)
    on_failure: str = field(default="halt", kw_only=True)
    max_retries: int = field(default=2, kw_only=True)
    on_iteration: Callable[[Iteration], object] | None = field(default=None, kw_only=True)

    limits: Mapping[str, int] = field(init=False, repr=False, compare=False)
    evaluators: Mapping[str, Step] = field(init=False, repr=False, compare=False)
    kit: Tools = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # The dataclass is frozen, because a running agent must not change.
        put = functools.partial(object.__setattr__, self)
        if not isinstance(self.name, str) or not self.name or "/" in self.name:
            raise _wrong(
                "name", self.name, "use a text without a slash, because it is part of paths"
            )
        for phase in PHASES:
            if (step := getattr(self, phase)) is not None:
                put(phase, as_step(step))
        if self.max_tool_calls_per_reply is not None and isinstance(self.execution, Prompt):
            put("execution", self.execution.calling_at_most(self.max_tool_calls_per_reply))
        put("limits", self._limits())
        put("evaluators", self._evaluators())
        put("capabilities", checked(self.capabilities))
        put("reserve_refinement", int(self.reserve_refinement))
        rounds = _integer("tools_per_iteration", self.tools_per_iteration, minimum=1)
        put("kit", Tools(tuple(self.tools), rounds))
        put("token_split", tuple(self.token_split))
        self._check()
        self._check_tokens()
        for code, sentence in self.warnings:
            if code == BUDGET_TOO_SMALL:
                warnings.warn(
                    LoopwrightWarning(f"{self.name}: {sentence}", code=code), stacklevel=3
                )

    def _limits(self) -> dict[str, int]:
        defaults = preset(self.preset or "base", self.task_complexity)
        if self.max_duration_seconds is None and "max_duration_seconds" in defaults:
            object.__setattr__(self, "max_duration_seconds", defaults["max_duration_seconds"])
        limits = {}
        for phase, name in zip(PHASES, _LIMITS, strict=True):
            explicit = getattr(self, name)
            limit = _integer(name, int(defaults[name]) if explicit is None else explicit, minimum=0)
            if limit > CEILING:
                raise _wrong(name, limit, f"the maximum is {CEILING}")
            # A limit for a phase without a step is probably a mistake in the name of the step.
            if explicit and getattr(self, phase) is None:
                raise _wrong(
                    name, explicit, f"there is no {phase} step; add one, or remove the limit"
                )
            limits[phase] = limit if getattr(self, phase) is not None else 0
        return limits

    def _evaluators(self) -> dict[str, Step]:
        evaluate = self.evaluate
        if evaluate is None:
            return {}
        if not isinstance(evaluate, Mapping):
            # Not planning: a plan is not an answer to the task.
            evaluate = dict.fromkeys(PHASES[1:], evaluate)
        for phase in evaluate:
            if phase not in PHASES:
                hint = nearest(str(phase), PHASES) or f"; use one of {', '.join(PHASES)}"
                raise _wrong("evaluate", phase, f"is not a phase{hint}")
        return {
            phase: as_step(judge, name="evaluate", purpose="evaluate")
            for phase, judge in evaluate.items()
        }

    def _check(self) -> None:
        if not self.phase_sum:
            raise ConfigurationError(
                "phased agent: no phase has an iteration. Set a step and a limit of at least 1."
            )
        if self.max_iterations is not None:
            _integer("max_iterations", self.max_iterations, minimum=1)
        if (seconds := self.max_duration_seconds) is not None:
            codec.number("phased agent: max_duration_seconds", seconds, minimum=0, above=True)
        if self.kit.tools and not isinstance(self.execution, Prompt):
            raise ConfigurationError(
                "phased agent: tools: only a prompt calls tools. Use execution=prompt(…)."
            )
        threshold = self.min_confidence_threshold
        codec.number("phased agent: min_confidence_threshold", threshold, minimum=0, maximum=1)
        _integer("reserve_refinement", self.reserve_refinement, minimum=0)
        if self.on_iteration is not None and not callable(self.on_iteration):
            raise _wrong("on_iteration", self.on_iteration, "is not a function")

    def _check_tokens(self) -> None:
        split = self.token_split
        if len(split) != len(PHASES):
            raise _wrong("token_split", split, "use three shares, one for each phase")
        for share in split:
            codec.number("phased agent: token_split", share, minimum=0, maximum=1)
        if sum(split) > 1 + 1e-9:  # the binary sum of exact shares may be slightly above 1
            raise _wrong("token_split", split, "the sum of the shares is above 1")
        if self.token_budget is None:
            return
        _integer("token_budget", self.token_budget, minimum=1)
        for (phase, tokens), share in zip(self.tokens.items(), split, strict=True):
            if self.limits[phase] and not tokens:
                name, value = (
                    ("token_budget", self.token_budget) if share else ("token_split", split)
                )
                advice = f"with its share {share}, {phase} has no tokens; raise it, or set the limit of {phase} to 0"
                raise _wrong(name, value, advice)

    @property
    def phase_sum(self) -> int:
        """The sum of the limits of the phases."""
        return sum(self.limits.values())

    @property
    def max_iterations_effective(self) -> int:
        """The limit of the agent: the explicit one, or the sum of the phases plus a tenth, at least one."""
        return effective(self.phase_sum, self.max_iterations)

    @property
    def tokens(self) -> dict[str, int]:
        """The tokens of each phase before a rollover; empty without a budget."""
        budget = self.token_budget
        if budget is None:
            return {}
        # 0.29 * 100 is below 29 in binary.
        return {p: int(budget * s + 1e-9) for p, s in zip(PHASES, self.token_split, strict=True)}

    @property
    def warnings(self) -> list[tuple[str, str]]:
        """The warnings about its limits, each a code and a sentence."""
        warnings = [(BUDGET_TOO_SMALL, sentence) for sentence in self._small_budgets()]
        cap, total = self.max_iterations, self.phase_sum
        if cap is not None and cap < total:
            reserved = min(int(self.reserve_refinement), self.limits["refinement"])
            ends = (
                f"{reserved} of it are reserved for refinement"
                if reserved
                else "so the last phases may not run; remove it, or set reserve_refinement"
            )
            capped = f"max_iterations {cap} is below the {total} of the phases together, {ends}"
            warnings.insert(0, (PHASES_CAPPED, capped))
        return warnings

    def _small_budgets(self) -> Iterator[str]:
        """Iterate over a warning for each phase whose tokens do not fit one call."""
        for phase, tokens in self.tokens.items():
            step = getattr(self, phase)
            if not self.limits[phase] or not isinstance(step, Prompt):
                continue
            needed = step.model_settings.max_tokens or step.model_settings.cap or DEFAULT_MAX_TOKENS
            if tokens < needed:
                yield (
                    f"the {tokens} tokens of {phase} are fewer than the {needed} that one "
                    "reply may have, so none of its calls fits; raise token_budget, or lower max_tokens of "
                    "the prompt"
                )

    supplies = ("task", "plan", "results")

    def parts(self) -> Iterable[Step]:
        steps = (getattr(self, phase) for phase in PHASES)
        return [step for step in (*steps, *self.evaluators.values()) if step is not None]

    @property
    def depth(self) -> int:
        """The number of nested loops, the phases included."""
        return 1 + super().depth

    @fingerprinted
    def fingerprint(self) -> str:
        # Phases that cannot run are not part of the identity.
        parts = {p: getattr(self, p).fingerprint for p in PHASES if self.limits[p]}
        judges = {phase: judge.fingerprint for phase, judge in self.evaluators.items()}
        settings = [
            self.max_iterations, dict(self.limits), self.max_duration_seconds,
            self.enable_dynamic_termination, self.min_confidence_threshold,
            self.reserve_refinement, self.token_budget, list(self.token_split),
            self.token_rollover, self.on_failure, self.max_retries, self.kit.named, self.kit.max_rounds,
        ]  # fmt: skip
        hooks = fingerprint_of(self.capabilities)
        return digest_of("phased agent", codec.canonical([parts, judges, settings, hooks]))

    async def run(self, value: Json, ctx: Context) -> Result:
        """Run the phases that the journal does not hold yet, and return the result."""
        return await PhasedRun(self, value, ctx).run()


def _integer(name: str, value: int, *, minimum: int) -> int:
    return codec.integer(f"phased agent: {name}", value, minimum=minimum)


def _wrong(name: str, value: object, problem: str) -> ConfigurationError:
    return ConfigurationError(f"phased agent: {name}: {value!r}: {problem}")
