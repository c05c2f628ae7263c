"""The phased agent: planning, execution and refinement, each a loop with its own limit.

Rules:

1. One iteration of a phase is one iteration of the agent: both counters move by one.
2. A phase that is done, or at its limit, is followed by the next; the agent ends after refinement.
3. The cap of the whole, the time of the whole, a confident answer and a capability end it in any
   phase. Running out is a result: it carries the best answer that there is.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...conditions import CEILING
from ...engine.context import Context
from ...engine.step import CompositeStep, Step, as_step, digest_of
from ...errors import ConfigurationError, LoopwrightWarning, nearest
from ...models.prices import DEFAULT_MAX_TOKENS
from ...prompts.prompt import Prompt
from ...records import Iteration, Result, codec
from ...records.codec import Json
from .capabilities import checked, fingerprint_of
from .phase import PHASES
from .presets import TOKEN_SPLIT, effective, preset
from .prompting import Tools

__all__ = ["PhasedAgent"]


@dataclass(frozen=True)
class PhasedAgent(CompositeStep):
    """An agent that plans, executes and refines; each phase is a step or a prompt.

    A phase is called with an object: `phase`, `input` (what the agent was given), `plan` (what
    planning gave), `results` (what execution gave, a list), and from its second iteration on
    `previous`, `feedback` and `improvements`. Prompts see `task`, `plan` and `results` by name too.
    Of an object that a phase returns, `done`, `next_phase`, `confidence`, `plan` and `answer` are
    read; see `phases`. An input with a `plan` skips planning: a coordinator made it.

    The output is the answer of the last phase that gave one; `Result.agents[name]` reports the
    iterations by phase, the phase reached, the caps, and what ended it.

    Args:
        planning, execution, refinement: what one iteration of the phase does; without one, or with
            a limit of 0, the phase is skipped.
        evaluate: judges what execution and refinement give (a mapping by phase: what those phases
            give): its score is the confidence, 0 to 1.
        preset, task_complexity: defaults for what is not given; see ROLES and COMPLEXITIES.
        role: an older spelling of `preset`. In a ReasoningAgent `role` is the persona.
        max_iterations: the cap of the whole; default: `max_iterations_effective`.
        max_duration_seconds: active seconds of the whole; the call in flight is cancelled.
        enable_dynamic_termination: end at a confidence of `min_confidence_threshold`, or a verdict
            that it passed. Without an evaluator the phase's result says its `confidence`.
        reserve_refinement: iterations of the cap kept for refinement; True is 1.
        token_budget: tokens of the whole, shared out by `token_split`; `token_rollover` hands what a
            phase left over to the next.
        capabilities: extensions; see Capability.
        tools: what the prompts of execution may call, over `tools_per_iteration` replies; each may
            have `max_tool_calls_per_reply` calls (default: 128).
        on_failure, max_retries: of each phase's loop; see Loop.
        on_iteration: called with each iteration of any phase, numbered over all of them.

    Raises:
        ConfigurationError: for an agent that could not mean anything.
    """

    planning: Any = None
    execution: Any = None
    refinement: Any = None
    name: str = field(default="agent", kw_only=True)
    evaluate: Any = field(default=None, kw_only=True)
    preset: str = field(default="", kw_only=True)
    role: str = field(default="", kw_only=True)
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
    capabilities: Sequence[Any] = field(default=(), kw_only=True)
    tools: Sequence[Any] = field(default=(), kw_only=True)
    tools_per_iteration: int = field(default=8, kw_only=True)
    max_tool_calls_per_reply: int | None = field(default=None, kw_only=True)
    on_failure: str = field(default="halt", kw_only=True)
    max_retries: int = field(default=2, kw_only=True)
    on_iteration: Callable[[Iteration], Any] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        put = functools.partial(object.__setattr__, self)
        if not isinstance(self.name, str) or not self.name or "/" in self.name:
            raise _wrong("name", self.name, "give text without a slash; it is part of paths")
        for phase in PHASES:
            if (given := getattr(self, phase)) is not None:
                put(phase, as_step(given))
        if self.max_tool_calls_per_reply is not None and isinstance(self.execution, Prompt):
            put("execution", self.execution.calling_at_most(self.max_tool_calls_per_reply))
        put("limits", self._limits())
        put("evaluators", self._evaluators())
        put("capabilities", checked(self.capabilities))
        put("reserve_refinement", int(self.reserve_refinement))
        put("kit", Tools(tuple(self.tools), codec.whole("phased agent: tools_per_iteration",
            self.tools_per_iteration, least=1)))  # fmt: skip
        self._check()
        for sentence in self.too_small:
            code, _, what = sentence.partition(": ")
            warnings.warn(LoopwrightWarning(f"{self.name}: {what}", code=code), stacklevel=3)

    limits: Mapping[str, int] = field(init=False, repr=False, compare=False, default_factory=dict)
    evaluators: Mapping[str, Any] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )
    kit: Tools = field(init=False, repr=False, compare=False, default_factory=Tools)

    def _limits(self) -> dict[str, int]:
        if self.preset and self.role and self.preset != self.role:
            raise _wrong("role", self.role, f"preset says {self.preset!r}; give one of the two")
        usual = preset(self.preset or self.role or "base", self.task_complexity)
        if self.max_duration_seconds is None and "max_duration_seconds" in usual:
            object.__setattr__(self, "max_duration_seconds", usual["max_duration_seconds"])
        found = {}
        for phase in PHASES:
            name = f"max_{phase}_iterations"
            given = getattr(self, name)
            limit = int(usual[name]) if given is None else given
            limit = codec.whole(f"phased agent: {name}", limit, least=0)
            if limit > CEILING:
                raise _wrong(name, limit, f"give at most {CEILING}")
            if given and getattr(self, phase) is None:
                raise _wrong(name, given, f"there is no {phase} step; give one, or no limit")
            found[phase] = limit if getattr(self, phase) is not None else 0
        return found

    def _evaluators(self) -> dict[str, Any]:
        given = self.evaluate
        if given is None:
            return {}
        if not isinstance(given, Mapping):
            given = dict.fromkeys(PHASES[1:], given)
        for phase in given:
            if phase not in PHASES:
                raise _wrong("evaluate", phase, f"is no phase{nearest(str(phase), PHASES)}")
        return {phase: as_step(judge, name="evaluate") for phase, judge in given.items()}

    def _check(self) -> None:
        if not self.phase_sum:
            raise ConfigurationError(
                "phased agent: no phase has an iteration; give a step and a limit of 1 or more"
            )
        if self.max_iterations is not None:
            codec.whole("phased agent: max_iterations", self.max_iterations, least=1)
        if self.max_duration_seconds is not None:
            codec.number(
                "phased agent: max_duration_seconds", self.max_duration_seconds, least=0, above=True
            )
        if self.kit.given and not isinstance(self.execution, Prompt):
            raise ConfigurationError(
                "phased agent: tools: only a prompt calls tools; give execution=prompt(…)"
            )
        threshold = self.min_confidence_threshold
        codec.number("phased agent: min_confidence_threshold", threshold, least=0, most=1)
        codec.whole("phased agent: reserve_refinement", self.reserve_refinement, least=0)
        if self.on_iteration is not None and not callable(self.on_iteration):
            raise _wrong("on_iteration", self.on_iteration, "is not a function")
        self._check_tokens()

    def _check_tokens(self) -> None:
        split = tuple(self.token_split)
        if len(split) != 3:
            raise _wrong("token_split", split, "give three shares: one for each phase")
        for share in split:
            codec.number("phased agent: token_split", share, least=0, most=1)
        if sum(split) > 1 + 1e-9:
            raise _wrong("token_split", split, "the shares add up to more than 1")
        object.__setattr__(self, "token_split", split)
        if self.token_budget is None:
            return
        codec.whole("phased agent: token_budget", self.token_budget, least=1)
        for phase, tokens in self.tokens.items():
            if self.limits[phase] and not tokens:
                share = self.token_split[list(self.tokens).index(phase)]
                cure = f"its share {share} leaves {phase} no tokens; give more, or {phase} a limit of 0"
                name = "token_budget" if share else "token_split"
                raise _wrong(name, self.token_budget if share else split, cure)

    @property
    def phase_sum(self) -> int:
        """The sum of the limits of the phases."""
        return sum(self.limits.values())

    @property
    def max_iterations_effective(self) -> int:
        """The cap of the whole: the explicit one, else the sum and a tenth more, at least one."""
        return effective(self.phase_sum, self.max_iterations)

    @property
    def tokens(self) -> dict[str, int]:
        """The tokens of each phase, without what others leave over; empty without a budget."""
        whole = self.token_budget
        if whole is None:
            return {}
        return {p: int(whole * s + 1e-9) for p, s in zip(PHASES, self.token_split, strict=True)}

    @property
    def warning(self) -> str:
        """What is wrong with an explicit cap that is below the sum of the phases, or ""."""
        cap, total = self.max_iterations, self.phase_sum
        if cap is None or cap >= total:
            return ""
        held = min(int(self.reserve_refinement), self.limits["refinement"])
        ends = (
            f"{held} of it are kept for refinement"
            if held
            else "so the last phases may not run; leave it out, or give reserve_refinement"
        )
        return f"max_iterations {cap} is below the {total} of the phases together, {ends}"

    @property
    def too_small(self) -> list[str]:
        """What is wrong with a budget of tokens that does not fit one call of a phase, a sentence each."""
        found = []
        for phase, tokens in self.tokens.items():
            step = getattr(self, phase)
            if not self.limits[phase] or not isinstance(step, Prompt):
                continue
            least = step.asking.max_tokens or step.asking.cap or DEFAULT_MAX_TOKENS
            if tokens < least:
                found.append(
                    f"budget_too_small: the {tokens} tokens of {phase} are fewer than the {least} that one "
                    "reply may have, so none of its calls fits; raise token_budget, or give the prompt a "
                    "smaller max_tokens"
                )
        return found

    supplies = ("task", "plan", "results")

    def parts(self) -> Iterable[Step]:
        steps = (getattr(self, phase) for phase in PHASES)
        return [step for step in (*steps, *self.evaluators.values()) if step is not None]

    @property
    def depth(self) -> int:
        """How many loops nest in it."""
        return 1 + super().depth

    @functools.cached_property
    def fingerprint(self) -> str:
        parts = {p: getattr(self, p).fingerprint for p in PHASES if self.limits[p]}
        judges = {phase: judge.fingerprint for phase, judge in self.evaluators.items()}
        settings = [
            self.max_iterations, dict(self.limits), self.max_duration_seconds,
            self.enable_dynamic_termination, self.min_confidence_threshold,
            self.reserve_refinement, self.token_budget, list(self.token_split),
            self.token_rollover, self.on_failure, self.max_retries, self.kit.named, self.kit.rounds,
        ]  # fmt: skip
        print_ = fingerprint_of(self.capabilities)
        return digest_of("phased agent", codec.canonical([parts, judges, settings, print_]))

    async def run(self, value: Json, ctx: Context) -> Result:
        """Run its phases, from where the journal stands."""
        from .run import PhasedRun  # which is about agents

        return await PhasedRun(self, value, ctx).drive()


def _wrong(name: str, value: Any, what: str) -> ConfigurationError:
    return ConfigurationError(f"phased agent: {name}: {value!r}: {what}")
