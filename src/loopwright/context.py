"""A step's place in the run, and its only door to the world.

Rules:

1. A step acts only through `ctx.call`; the journal knows what happened before anyone acts on it.
2. Gates chain from the outermost loop inwards: an outer deadline, budget or guard binds everything
   inside.
3. Only leaves are effects. A step made of steps is pure orchestration, and is replayed by running
   it again.
4. A cancelled call is not recorded as finished; what it may have cost is settled all the same.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Coroutine, Mapping
from typing import Any, Protocol

from .budget import Account
from .codec import Json, copied
from .effects import perform, unrecorded
from .errors import StepError
from .records import NOTHING, History, Iteration, Reason, Result, Status, Usage
from .runtime import Gate, Run, Scope

__all__ = ["Context", "Step"]


class Step(Protocol):
    """Anything that runs: a function, a command, a prompt, a loop, a workflow.

    A leaf (`effect` true) answers `act`; a step made of steps answers `run`.
    """

    name: str
    effect: bool
    required: bool

    @property
    def fingerprint(self) -> str:
        """A digest that changes when the step's meaning does."""


class Context:
    """Where a step is in the run, and its only door to the world."""

    __slots__ = ("account", "gate", "names", "path", "run", "scope", "spent")

    def __init__(
        self, run: Run, path: str, gate: Gate | None, account: Account, scope: Scope | None
    ) -> None:
        self.run = run
        self.path = path
        self.gate = gate
        self.account = account
        self.scope = scope
        self.spent = NOTHING
        self.names: set[str] | None = None  # of calls made, where a function makes them

    def child(self, path: str) -> Context:
        """Return the context of a step inside this one."""
        return Context(self.run, path, self.gate, self.account, self.scope)

    def within(self, path: str) -> Context:
        """Return the context of an effect inside this one: each of its calls needs its own name."""
        inner = self.child(path)
        inner.names = set()
        return inner

    def below(self, name: str) -> str:
        """Return the path of a step inside this one."""
        return f"{self.path}/{name}" if self.path else name

    # What a user's function may ask.

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self.run.run_id

    @property
    def iteration(self) -> int:
        """The number of the present iteration of the enclosing loop, from 1; 0 outside of loops."""
        return self.scope.number if self.scope else 0

    @property
    def history(self) -> History:
        """The finished iterations of the enclosing loop."""
        return self.scope.history if self.scope else History()

    @property
    def last(self) -> Iteration | None:
        """The latest finished iteration of the enclosing loop."""
        return self.history.last

    @property
    def initial(self) -> Json:
        """The input that the enclosing loop or workflow was given; it never changes."""
        return copied(self.scope.initial) if self.scope else None

    @property
    def input(self) -> Json:
        """The input of the present iteration."""
        return copied(self.scope.current) if self.scope else None

    @property
    def outputs(self) -> Mapping[str, Json]:
        """The outputs of the finished steps of the enclosing workflow, by name."""
        return self.scope.outputs if self.scope else {}

    @property
    def idempotency_key(self) -> str:
        """A key that stays the same when this very effect is tried again after a crash."""
        text = f"{self.run.run_id}\n{self.path}"
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def remaining(self) -> float:
        """Return the seconds until the nearest deadline, or infinity."""
        return self.gate.remaining(self.run) if self.gate else math.inf

    def spend(self, usage: Usage) -> None:
        """Say what this step spent; it is settled in every enclosing account when the step ends.

        Raises:
            StepError: for what is no Usage.
        """
        if not isinstance(usage, Usage):
            raise StepError(
                f"{usage!r:.40} is no usage; spend Usage(calls=…, usd=…)",
                path=self.path, kind="bad_usage", retryable=False,
            )  # fmt: skip
        self.spent += usage

    def warn(self, sentence: str) -> None:
        """Add a sentence to the result's warnings."""
        self.run.warn(f"{self.path}: {sentence}")

    def ask(self, name: str, request: Mapping[str, Json], detail: str) -> Json:
        """Return a person's answer to a question of this step, or suspend the run until there is one.

        `name` is what the question is called in the journal, `request` what the answerer is shown,
        `detail` the sentence by which the run explains that it waits. Its `kind` says which answers
        fit (see `approvals`; any do without one). Answers are given with `loopwright approve`, and
        survive restarts. A function that asks begins again from its start when it is answered: what
        it did before it asked should be calls of its own.

        Raises:
            Suspended: as long as nobody answered.
        """
        return self.run.ask(self.below(name), request, detail)

    async def sleep(self, seconds: float) -> None:
        """Wait, but not past the nearest deadline.

        Raises:
            Stopped: by the loop whose deadline comes first.
        """
        await self.run.settle()  # nobody should pay twice for what was done before a long wait
        left = self.remaining()
        await self.run.clock.sleep(max(0.0, min(seconds, left)))
        if self.gate is not None:
            self.gate.ask(self.run)

    # The door.

    def call(
        self, name: str, step: Any, value: Json = None, token: str = ""
    ) -> Coroutine[Any, Any, Json]:
        """Run a step inside this one and return its output; to be awaited.

        `token` names the input in the fingerprint where the input itself is already on record.

        Raises:
            StepError: if it failed, or is a required loop that was not satisfied.
        """
        if self.names is not None:
            self._take(name)
        try:
            effect = step.effect
        except AttributeError:
            raise StepError(
                f"{getattr(step, '__name__', step)!r} is no step; make it one with step(…)",
                path=self.below(name), kind="bad_step", retryable=False,
            ) from None  # fmt: skip
        if not effect:
            return self._through(self.below(name), step, value)
        run = self.run
        if run.silent and self.gate is None and not step.wants_context and step.reserve is None:
            return unrecorded(self, name, step, value)
        return perform(self, f"{self.path}/{name}" if self.path else name, step, value, token)

    def _take(self, name: str) -> None:
        assert self.names is not None
        if name in self.names:
            raise StepError(
                f"the name {name!r} was used by an earlier call of this step; "
                "give each call a name of its own",
                path=self.below(name),
                kind="used_twice",
                retryable=False,
            )
        self.names.add(name)

    async def _through(self, path: str, step: Any, value: Json) -> Json:
        result: Result = await step.run(value, self.child(path))
        if result.status is Status.FAILED:
            raise StepError(result.detail, path=path, kind=result.reason.value)
        if result.status is Status.EXHAUSTED and step.required:
            raise StepError(f"required, but {result.detail}", path=path, kind="exhausted")
        return result.output

    async def outcome(self, name: str, step: Any, value: Json = None) -> Result:
        """Run a step inside this one and return how it ended; a leaf completes or raises."""
        path = self.below(name)
        if not step.effect:
            result: Result = await step.run(value, self.child(path))
            return result
        output = await perform(self, path, step, value, "")
        return Result(Status.SATISFIED, Reason.COMPLETED, f"{path} completed", output, name=name)
