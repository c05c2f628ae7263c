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
from typing import Any

from ..errors import StepError
from ..records import NOTHING, History, Iteration, Reason, Result, Status, Usage, own
from ..records.codec import Json
from .budget import Account
from .deadlines import DeadlineScope
from .effects import perform, unrecorded
from .run_state import Run
from .scope import Scope
from .step import CompositeStep, Leaf, Step

__all__ = ["Context"]


class Context:
    """Where a step is in the run, and its only door to the world."""

    __slots__ = ("account", "gate", "names", "path", "run", "scope", "spent")

    def __init__(
        self, run: Run, path: str, gate: DeadlineScope | None, account: Account, scope: Scope | None
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
        """The finished iterations of the enclosing loop: a copy of the reader's own, as all that follows."""
        return self.scope.history.view() if self.scope else History()

    @property
    def last(self) -> Iteration | None:
        """The latest finished iteration of the enclosing loop."""
        found = self.scope.history.last if self.scope else None
        return None if found is None else found.view()

    @property
    def initial(self) -> Json:
        """The input that the enclosing loop or workflow was given; it never changes."""
        return own(self.scope.initial) if self.scope else None

    @property
    def input(self) -> Json:
        """The input of the present iteration."""
        return own(self.scope.current) if self.scope else None

    @property
    def outputs(self) -> Mapping[str, Json]:
        """The outputs of the finished steps of the enclosing workflow, by name."""
        return {k: own(v) for k, v in self.scope.outputs.items()} if self.scope else {}

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
        """Add a sentence to the result's warnings, once in a run."""
        self.run.warn(sentence, self.path)

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
        return own(self.run.ask(self.below(name), own(dict(request)), detail))

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
        self, name: str, step: Step, value: Json = None, token: str = ""
    ) -> Coroutine[Any, Any, Json]:
        """Run a step inside this one and return its output; to be awaited.

        `token` names the input in the fingerprint where the input itself is already on record.

        Raises:
            StepError: if it failed, or is a required loop that was not satisfied.
        """
        if self.names is not None:
            return self._called(name, step, value, token)
        return self._begun(name, step, value, token)

    async def _called(self, name: str, step: Step, value: Json, token: str) -> Json:
        """Run a step for a function, which keeps what it gave and may change what it gets."""
        self._take(name)
        return own(await self._begun(name, step, own(value), token))

    def _begun(self, name: str, step: Step, value: Json, token: str) -> Coroutine[Any, Any, Json]:
        if isinstance(step, Leaf):
            plain = self.gate is None and not step.wants_context and step.reserve is None
            if self.run.silent and plain and not self.account.limited:
                return unrecorded(self, name, step, value)
            return perform(self, f"{self.path}/{name}" if self.path else name, step, value, token)
        if isinstance(step, CompositeStep):
            return self._through(self.below(name), step, value)
        raise self._bad_step(name, step)

    def _bad_step(self, name: str, step: object) -> StepError:
        return StepError(
            f"{getattr(step, '__name__', step)!r} is not a step; make it one with step(…)",
            path=self.below(name), kind="bad_step", retryable=False,
        )  # fmt: skip

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

    async def _through(self, path: str, step: CompositeStep, value: Json) -> Json:
        result: Result = await step.run(value, self.child(path))
        if result.status is Status.FAILED and not result.gone_on:
            raise StepError.of(result, path)
        if not result.satisfied and step.required:
            kind = result.status.value
            raise StepError(f"required, but {result.detail}", path=path, kind=kind)
        return result.output

    async def outcome(self, name: str, step: Step, value: Json = None) -> Result:
        """Run a step inside this one and return how it ended; a leaf completes or raises."""
        if self.names is None:
            return await self._ended(name, step, value)
        self._take(name)
        return (await self._ended(name, step, own(value))).view()

    async def _ended(self, name: str, step: Step, value: Json) -> Result:
        path = self.below(name)
        if isinstance(step, CompositeStep):
            return await step.run(value, self.child(path))
        if not isinstance(step, Leaf):
            raise self._bad_step(name, step)
        output = await perform(self, path, step, value, "")
        return Result(Status.SATISFIED, Reason.COMPLETED, f"{path} completed", output, name=name)

    def __dir__(self) -> list[str]:
        """What a function may use; the rest is the engine's."""
        return sorted(_PUBLIC)


_PUBLIC = (
    "ask", "call", "history", "idempotency_key", "initial", "input", "iteration", "last", "outcome",
    "outputs", "path", "remaining", "run_id", "sleep", "spend", "spent", "warn",
)  # fmt: skip
