"""Capabilities: extensions of a phased agent that see, and may change, what goes through it.

Rules:

1. Every call of a hook is an effect of the journal: a resumed run goes on with what it answered.
   A hook keeps nothing in its object that the run depends on; what it must know is in `context`. What it
   stores there is recorded with its answer, and later hooks, iterations and resumes see it.
2. A hook that fails is a warning, and what it was given goes on unchanged: it never loses the run.
3. Capabilities are called in the order in which they are given, each with what the one before made.
4. Only hooks that a capability has of its own are called.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ...engine.context import Context
from ...engine.step import FunctionStep, digest_of
from ...engine.threads import in_thread
from ...errors import ConfigurationError, StepError
from ...records import codec
from ...records.codec import Json

__all__ = ["AgentState", "Capability", "Hooks", "says"]


@dataclass(frozen=True, slots=True)
class AgentState:
    """How far a phased agent is, as its capabilities see it.

    `current_iteration` counts the iterations of all phases begun before this one, `iteration` is the
    number of the present one in this visit of its phase (0 outside of one), `phase_iterations` the
    total by phase. `memory` holds `{type, content}` of what was produced, oldest first.
    """

    name: str
    input: Json = None
    phase: str = ""
    iteration: int = 0
    current_iteration: int = 0
    phase_iterations: Mapping[str, int] = field(default_factory=dict)
    memory: Sequence[Json] = ()

    def to_json(self) -> dict[str, Json]:
        """Return it as a JSON object."""
        return {
            "name": self.name,
            "input": self.input,
            "phase": self.phase,
            "iteration": self.iteration,
            "current_iteration": self.current_iteration,
            "phase_iterations": dict(self.phase_iterations),
            "memory": list(self.memory),
        }


class Capability:
    """An extension of a phased agent; a subclass overrides the hooks that it needs.

    `agent` is an AgentState, a copy. `context` is the object that `init` made: what a hook stores in it is
    recorded, and every later hook sees it, in later iterations and after a resume too. Hooks may be plain
    functions, which run in a thread.
    """

    name: str = ""
    description: str = ""

    async def init(self, agent: AgentState, context: dict[str, Json]) -> dict[str, Json]:
        """Return the context that every later hook is given."""
        return context

    async def start_agent_loop(self, agent: AgentState, context: dict[str, Json]) -> bool:
        """Say whether the next iteration may begin; False ends the agent."""
        return True

    async def process_prompt(self, agent: AgentState, context: dict[str, Json], prompt: str) -> str:
        """Return the text that a phase of a prompt sends to its model."""
        return prompt

    async def process_response(
        self, agent: AgentState, context: dict[str, Json], response: Json
    ) -> Json:
        """Return what the model answered: text, or data where the prompt has a schema."""
        return response

    async def process_action(
        self, agent: AgentState, context: dict[str, Json], action: dict[str, Json]
    ) -> dict[str, Json]:
        """Return what is done: `{name, arguments}` of a tool or of a phase that is no prompt."""
        return action

    async def process_result(
        self,
        agent: AgentState,
        context: dict[str, Json],
        response: Json,
        action: dict[str, Json],
        result: Json,
    ) -> Json:
        """Return what an action gave."""
        return result

    async def process_new_memories(
        self,
        agent: AgentState,
        context: dict[str, Json],
        response: Json,
        result: Json,
        memories: list[Json],
    ) -> list[Json]:
        """Return what is remembered of an iteration."""
        return memories

    async def end_agent_loop(self, agent: AgentState, context: dict[str, Json]) -> None:
        """Be told that an iteration is over, failed or not."""

    async def should_terminate(
        self, agent: AgentState, context: dict[str, Json], response: Json
    ) -> bool:
        """Say whether the agent should end now, with what it has."""
        return False

    async def terminate(self, agent: AgentState, context: dict[str, Json]) -> dict[str, Json]:
        """Clean up when the agent ends; what is returned is in its report."""
        return {}


HOOKS: Final = tuple(
    name for name, made in vars(Capability).items() if inspect.iscoroutinefunction(made)
)
_YES, _NO = ("true", "yes", "y", "1"), ("false", "no", "n", "0", "", "null", "none")


def says(value: Json) -> bool | None:
    """Return a yes or no as it is meant: "NO" is false; None for what is neither."""
    if value is None or isinstance(value, bool):
        return bool(value)
    word = str(value).strip().strip(".!*\"'`").lower() if isinstance(value, str | int) else "?"
    return True if word in _YES else False if word in _NO else None


_TURN = "_turn"  # in a recorded context: which call left it


class Hooks:
    """The capabilities of one agent while it runs; `context` is what their `init` made."""

    def __init__(self, capabilities: Sequence[Any]) -> None:
        self.context: dict[str, Json] = {}
        self._turn = 0  # of the call that changed the context last
        self._one = asyncio.Lock()  # tools run at once; what their hooks store must not be lost
        self._named: list[tuple[str, Any]] = []
        for number, capability in enumerate(capabilities, start=1):
            name = str(getattr(capability, "name", "") or type(capability).__name__)
            name = name.replace("/", "-")
            taken = any(name == other for other, _ in self._named)
            self._named.append((f"{name}-{number}" if taken else name, capability))

    def __bool__(self) -> bool:
        return bool(self._named)

    async def begin(self, ctx: Context, state: AgentState) -> None:
        """Let each `init` make the context that later hooks are given."""
        for name, leaf in self.of("init"):
            made = await self._call(
                ctx, name, hook="init", leaf=leaf, state=state, args=(), otherwise=None
            )
            if isinstance(made, dict):
                self._store(made, self._turn + 1)
            elif made is not None:
                ctx.warn(f"{name}.init returned {made!r:.80}, which is no object")

    def of(self, hook: str) -> list[tuple[str, FunctionStep]]:
        """Return the steps that call one hook, by the name of their capability."""
        return [(name, _leaf(name, one, hook)) for name, one in self._named if _has(one, hook)]

    async def changed(
        self, ctx: Context, hook: str, state: AgentState, value: Json, *, of: Sequence[Json] = ()
    ) -> Json:
        """Return a value as the capabilities leave it; `of` are the arguments before it."""
        kind = {"process_new_memories": list, "process_action": dict}.get(hook)
        for name, leaf in self.of(hook):
            made = await self._call(
                ctx, name, hook=hook, leaf=leaf, state=state, args=[*of, value], otherwise=value
            )
            if kind is not None and not isinstance(made, kind):
                ctx.warn(f"{name}.{hook} returned {made!r:.80}, which is no {kind.__name__}")
                continue
            value = made
        return value

    async def asked(
        self, ctx: Context, hook: str, state: AgentState, *args: Json, usual: bool
    ) -> str:
        """Return the name of the first capability that answers otherwise than usual, or ""."""
        for name, leaf in self.of(hook):
            answer = await self._call(
                ctx, name, hook=hook, leaf=leaf, state=state, args=args, otherwise=usual
            )
            meant = says(answer) if answer is not None else usual
            if meant is None:
                ctx.warn(f"{name}.{hook} returned {answer!r:.80}, which is neither yes nor no")
            elif meant is not usual:
                return name
        return ""

    async def told(self, ctx: Context, hook: str, state: AgentState) -> dict[str, Json]:
        """Tell every capability, and return what they said by name."""
        said = {}
        for name, leaf in self.of(hook):
            said[name] = await self._call(
                ctx, name, hook=hook, leaf=leaf, state=state, args=(), otherwise=None
            )
        return {name: answer for name, answer in said.items() if answer}

    async def _call(
        self,
        ctx: Context,
        name: str,
        hook: str,
        leaf: FunctionStep,
        state: AgentState,
        args: Sequence[Json],
        otherwise: Json,
    ) -> Json:
        given = {"agent": state.to_json(), "args": list(args)}
        # The context is no part of what a replay compares: hooks of tools that run at once change it.
        token = codec.digest(codec.normalise(given)) if ctx.run.keeps else ""
        async with self._one:
            try:
                told = await ctx.call(
                    f"{name}.{hook}", leaf, {**given, "context": self.context}, token
                )
            except StepError as error:
                ctx.warn(f"the capability {name} failed in {hook}: {error}")
                return otherwise
            if "context" in told:
                self._store(told["context"], told["context"].get(_TURN, self._turn + 1))
        return told["answer"]

    def _store(self, context: dict[str, Json], turn: int) -> None:
        """Take up the context that a hook left, unless a later call left another one."""
        if turn > self._turn:
            self._turn = turn
            self.context = {**context, _TURN: turn}

    def restore(self, context: Json) -> None:
        """Take up the context that an iteration on record ended with."""
        if isinstance(context, dict):
            self._store(context, context.get(_TURN, 0))


def _has(capability: Any, hook: str) -> bool:
    own = getattr(type(capability), hook, None)
    return own is not None and own is not getattr(Capability, hook)


def _leaf(name: str, capability: Any, hook: str) -> FunctionStep:
    method = getattr(capability, hook)

    async def call(given: Json) -> Json:
        state = AgentState(**given["agent"])
        before = given["context"]
        turn = before.get(_TURN, 0)
        context = {key: value for key, value in codec.copied(before).items() if key != _TURN}
        args = (state, context, *given["args"])
        if inspect.iscoroutinefunction(inspect.unwrap(method)):
            found = await method(*args)
        else:
            found = await in_thread(method, *args)
            found = await found if inspect.isawaitable(found) else found
        told = {"answer": found}
        if {**context, _TURN: turn} != {_TURN: turn, **before}:
            told["context"] = {**context, _TURN: turn + 1}
        return told

    code = getattr(inspect.unwrap(method), "__code__", None)
    text = code.co_code.hex() if code is not None else ""
    print_ = digest_of("capability 2", type(capability).__qualname__, hook, text)
    return FunctionStep(call, name=f"{name}.{hook}", fingerprint=print_)


def checked(capabilities: Any) -> tuple[Any, ...]:
    """Return capabilities as a tuple.

    Raises:
        ConfigurationError: for what has none of the hooks.
    """
    if isinstance(capabilities, Capability):
        capabilities = (capabilities,)
    for one in capabilities:
        if isinstance(one, type) or not any(callable(getattr(one, hook, None)) for hook in HOOKS):
            raise ConfigurationError(
                f"phased agent: capabilities: {one!r} is not a capability; "
                f"give an object with one of the methods {', '.join(HOOKS)}"
            )
    return tuple(capabilities)


def fingerprint_of(capabilities: Sequence[Any]) -> str:
    """Return a digest that changes when a hook does."""
    hooks = Hooks(capabilities)
    leaves = [leaf.fingerprint for hook in HOOKS for _, leaf in hooks.of(hook)]
    return digest_of("capabilities", codec.canonical(leaves)) if leaves else ""
