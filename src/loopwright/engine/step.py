"""Steps: everything that runs is one, so steps nest, such as a loop in a workflow in a loop.

A `Leaf` acts itself, a `CompositeStep` runs other steps. A function is a leaf: `f()`, `f(value)` or
`f(value, ctx)`, plain (it runs in a thread) or async.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Protocol,
    TypedDict,
    Unpack,
    cast,
    overload,
)

from typing_extensions import TypeVar

from ..errors import ConfigurationError, nearest
from ..journal import Entry, is_note
from ..records import Evaluation, Result, Usage, own
from ..records.codec import Json
from ..records.typed import ValueType
from .functions import (
    KNOWN_AS,
    AgentLike,
    EvaluatesOutput,
    FunctionTypes,
    MeasuresTestCase,
    Purpose,
    RunnableLike,
    ScoresOutput,
    ScoresTask,
    adapted,
    digest_of,
    fingerprinted,
    former_fingerprints,
    former_version,
    known_as,
    source_digest,
    thread_caller,
    types_of,
)

__all__ = [
    "MODEL_NAME",
    "PYTHON",
    "AsyncFunction",
    "CompositeStep",
    "EvaluationLike",
    "EvaluatorLike",
    "FunctionStep",
    "Leaf",
    "MetricLike",
    "Step",
    "StepLike",
    "as_step",
    "digest_of",
    "fingerprinted",
    "former_version",
    "known_as",
    "reserving",
    "source_digest",
    "step",
]

Function = Callable[..., Any]  # its signature decides which arguments it receives
In = TypeVar("In", default=Any)
Out = TypeVar("Out", default=Any)
# The defaults keep a bare `Step`, `Leaf` or `CompositeStep` legal under `mypy --strict`.
In_contra = TypeVar("In_contra", contravariant=True, default=Any)
Out_co = TypeVar("Out_co", covariant=True, default=Any)

MODEL_NAME = "model:"  # before the name of a model in `unsupplied`
PYTHON = "Python function"  # the kind of effect of a user's function
Reserve = Callable[[Json], Usage | None]  # the most that a call with an input may cost
_Act = Callable[..., Awaitable[Json]]  # takes an input, and a Context or None
_NO_NAMES: Mapping[str, str] = MappingProxyType({})


class Step(Generic[In_contra, Out_co]):
    """Anything that runs: a function, a command, a prompt, a loop, a workflow.

    It is nominal and has no `__call__` in its type: with one, mypy infers Never for every
    `Loop(step, …)`. Every step is a `Leaf` or a `CompositeStep`.
    """

    __slots__ = ()

    if TYPE_CHECKING:
        # Read-only to a type checker, so that a subclass may have a field, a constant or a property.

        name: str  # in paths
        noun: ClassVar[str]  # what messages call it
        unsupplied: Mapping[str, str]  # template variables without a value, each with a sentence

        @property
        def fingerprint(self) -> str:
            """A digest that changes when the step's meaning does."""

        former: Callable[[], str] | None  # the fingerprint that an earlier version gave it
        complete_input: Callable[[Any], Json] | None  # checks and completes the input of a new run

        @property
        def renewed(self) -> Sequence[tuple[int, str]]:
            """What a version of fingerprints changed in its meaning, as (version, words), for recorded runs."""

        @property
        def required(self) -> bool:
            """Whether the workflow around it ends unless it is satisfied."""

        @property
        def accept(self) -> tuple[str, ...]:
            """The statuses that do not count for the workflow around it."""

        @property
        def depth(self) -> int:
            """How many loops nest in it."""

        @property
        def asks_model(self) -> bool:
            """Whether it calls a model of the run."""

        @property
        def reads_past(self) -> bool:
            """Whether a loop in it has a setting that past runs decide."""

        @property
        def explores(self) -> bool:
            """Whether a loop in it explores."""

        @property
        def scores_only(self) -> bool:
            """Whether it is an evaluator that never gives a verdict."""

        @property
        def reports(self) -> bool | None:
            """Whether it reports what it costs; None if its kind and its parts decide."""

        @property
        def words(self) -> str:
            """What it runs outside of this process: its command, or its agent with the model; "" for others."""

        @property
        def input_type(self) -> ValueType | None:
            """The declared type of its input, or None."""

        @property
        def output_type(self) -> ValueType | None:
            """The declared type of its output, or None."""
    else:
        noun = "step"
        renewed = ()
        input_type = None
        output_type = None
        complete_input = None
        former = None
        required = False
        accept = ()
        depth = 0
        unsupplied = _NO_NAMES
        asks_model = False
        reads_past = False
        explores = False
        scores_only = False
        reports = None
        words = ""

    def recorded_as(self, fingerprint: str) -> bool:
        """Return whether this or an earlier version gives it a fingerprint."""
        return fingerprint in former_fingerprints(self)

    def parts(self) -> Iterable[Step]:
        """Return the steps directly inside it."""
        return ()

    def changed(self, entries: Sequence[Entry]) -> str:
        """Return what of its data is not as the entries of a run have it, or ""."""
        return next((text for part in self.parts() if (text := part.changed(entries))), "")

    def preparations(self) -> Iterable[Step]:
        """Return the steps that a loop with a workspace runs once, before its first iteration.

        A recorded output stands in `scope.prepared` under the fingerprint of its step.
        """
        return (step for part in self.parts() for step in part.preparations())

    def conclusions(self) -> Iterable[Step]:
        """Return the steps that a loop with a workspace runs once, at its end.

        The input is the number of the iteration whose files remain. The outputs stand in `Result.held_out`
        under the names of the steps.
        """
        return (step for part in self.parts() for step in part.conclusions())


class Leaf(Step[In_contra, Out_co]):
    """A step that acts: each call is one effect, which the journal records."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def idempotent(self) -> bool:
            """Whether it may run twice if the process dies during a call."""

        @property
        def wants_context(self) -> bool:
            """Whether it acts with a context; else it gets None."""

        @property
        def reserve(self) -> Reserve | None:
            """A function of the input that returns the most that a call may cost."""

        @property
        def types(self) -> FunctionTypes | None:
            """How it reads and writes values of declared types; None for a step that has JSON."""

        @property
        def in_folder(self) -> bool:
            """Whether it acts on the files of its working directory, which a workspace puts back."""

        @property
        def counts(self) -> bool:
            """Whether a limit on the number of effects counts it; it does not count notes."""

        @property
        def finishes(self) -> bool:
            """Whether a call in progress continues to its end if another owner takes the run over."""

        @property
        def stub(self) -> str:
            """The kind of effect that a stub replaces in a dry run; "" if it acts there too."""

        @property
        def asks(self) -> Json:
            """The request that a call sends, for its journal entry, if it differs from the input."""
    else:
        types = None
        idempotent = True
        wants_context = True
        reserve = None
        in_folder = False
        counts = True
        finishes = False
        stub = ""
        asks = None

    def declared(self) -> FunctionTypes | None:
        """Return its declared types; None for a step that has JSON."""
        return None

    def stubbed(self, output: Json) -> Json:
        """Return the output of a stub in the form of the step's own output."""
        return output

    def act(self, value: In_contra, ctx: Any) -> Awaitable[Out_co]:
        """Act on the input and return the output; `ctx` is its Context, or None."""
        raise NotImplementedError


ACCEPTABLE = ("failed", "exhausted", "impossible")  # statuses that `accept` may name


def acceptable(owner: str, accept: str | Iterable[str], *, required: bool) -> tuple[str, ...]:
    """Return the statuses that a step accepts, checked.

    Raises:
        ConfigurationError: for another word, or for a step that is required and accepts.
    """
    words = (accept,) if isinstance(accept, str) else tuple(accept)
    for word in words:
        if word not in ACCEPTABLE:
            raise ConfigurationError(
                f"{owner}: accept: {word!r} is none of {', '.join(ACCEPTABLE)}"
                f"{nearest(str(word), ACCEPTABLE)}"
            )
    if words and required:
        raise ConfigurationError(
            f"{owner}: required and accept: {' and '.join(words)} contradict each other; remove one of "
            "the two"
        )
    return tuple(str(word) for word in words)


class CompositeStep(Step[In_contra, Out_co]):
    """A step that runs other steps: it has no effect itself, and a replay runs it again."""

    supplies: Collection[str] = ()  # template variables inside it, beyond those always there
    keeps_types: ClassVar[bool] = False  # whether it passes on values with their declared types
    named_steps: Mapping[str, Step] = MappingProxyType({})  # those of a workflow

    if not TYPE_CHECKING:

        @functools.cached_property
        def asks_model(self) -> bool:
            return any(part.asks_model for part in self.parts())

        @functools.cached_property
        def reads_past(self) -> bool:
            return any(part.reads_past for part in self.parts())

        @functools.cached_property
        def explores(self) -> bool:
            return any(part.explores for part in self.parts())

        @property
        def depth(self) -> int:
            return max((part.depth for part in self.parts()), default=0)

        @functools.cached_property
        def unsupplied(self) -> Mapping[str, str]:
            missing = {}
            for part in self.parts():
                missing |= part.unsupplied
            return {name: text for name, text in missing.items() if name not in self.supplies}

    def run(self, value: In_contra, ctx: Any) -> Coroutine[object, object, Result]:
        """Run its steps with a Context and return how it ended."""
        raise NotImplementedError


EvaluationLike = Evaluation | float | bool | Mapping[str, Any] | None  # what an evaluator returns
MetricLike = EvaluatesOutput | ScoresOutput | ScoresTask | MeasuresTestCase  # of other libraries
if TYPE_CHECKING:
    from .context import Context

    # The union is in the result, not in the function: four callables make mypy infer too late.
    StepLike = (
        Step[In, Out]
        | Callable[[In], Awaitable[Out] | Out]
        | Callable[[In, Context], Awaitable[Out] | Out]
        | AgentLike[Out]
        | RunnableLike
    )
    EvaluatorLike = StepLike[In, EvaluationLike] | MetricLike
    # For an overload of its own: mypy does not choose between the two results in the union above.
    AsyncFunction = Callable[[In], Awaitable[Out]] | Callable[[In, Context], Awaitable[Out]]
else:
    AsyncFunction = Function
    StepLike = Step | Function | AgentLike | RunnableLike
    EvaluatorLike = StepLike | MetricLike


UNREAD = FunctionTypes("", problem="not read yet")  # of a function that has not run


class FunctionStep(Leaf[In_contra, Out_co]):
    """A Python function as a leaf step. See `step`.

    Args:
        function, name, reserve, idempotent, inline, fingerprint, on_lost: as for `step`.
        reports: whether it reports its cost. Default: whether it takes a context.
        typed: whether its annotations declare the types of its input and output.
        reader: the step that receives the input inside the function, whose input type it has.
    """

    noun = "function"
    act: _Act
    counts: bool
    finishes: bool
    idempotent: bool
    reports: bool | None
    reserve: Reserve | None
    early: bool
    measures_only: bool
    scores_only: bool
    stub: str
    wants_context: bool
    words: str
    types: FunctionTypes | None

    def __init__(
        self,
        function: Function,
        *,
        name: str = "",
        reserve: Usage | Reserve | None = None,
        idempotent: bool = True,
        inline: bool = False,
        fingerprint: str = "",
        on_lost: str = "cancel",
        reports: bool | None = None,
        typed: bool = False,
        reader: Leaf | None = None,
    ) -> None:
        # Annotations are read at the first use: they may name classes that are defined later.
        declares = reader is not None or (typed and not hasattr(function, KNOWN_AS))
        self.types = UNREAD if declares else None
        self.reader = reader
        self.function = function
        self.name = name or getattr(function, "__name__", type(function).__name__)
        self.idempotent = idempotent
        if on_lost not in ("cancel", "finish"):
            raise ConfigurationError(
                f"step {self.name}: on_lost: {on_lost!r} is not 'cancel' or 'finish'"
            )
        self.finishes = on_lost == "finish"
        self.reserve = reserving(reserve)
        self.reports = reports
        self._known_as = fingerprint
        self.counts = not is_note(fingerprint)
        self.scores_only = False  # of an evaluator: whether it never gives a verdict
        self.measures_only = False  # of an evaluator: whether it gives metrics and never a score
        self.early = False  # of a metric: whether its value on the way can end it
        # Functions of this package have a fingerprint; a dry run calls no others.
        self.stub = "" if fingerprint or hasattr(function, KNOWN_AS) else PYTHON
        count = _parameters(function)
        self.wants_context = count >= 2
        self.act = _caller(function, count, inline)

    def declared(self) -> FunctionTypes | None:
        """Return its declared types, by the annotations; None if it has JSON."""
        if self.types is UNREAD:
            if self.reader is None:
                self.types = types_of(self.function, self.name)
            else:
                types = self.reader.declared()
                self.types = None if types is None else types.for_reader()
        return self.types

    @property
    def input_type(self) -> ValueType | None:
        """The type of the first parameter, by its annotation."""
        return None if (types := self.declared()) is None else types.input

    @property
    def output_type(self) -> ValueType | None:
        """The type that it returns, by its annotation."""
        return None if (types := self.declared()) is None else types.output

    def making_input_of(self, reader: Step) -> FunctionStep:
        """Return it as a step whose output has the input type of another, unless it declares one."""
        types, wanted = self.declared(), reader.input_type
        if types is None or types.output is not None or wanted is None or wanted.is_json:
            return self
        # A copy: the same function may be a step elsewhere, with another reader.
        adapter = copy.copy(self)
        adapter.types = copy.copy(types)
        adapter.types.like, adapter.types.json_output = reader, False
        return adapter

    @fingerprinted
    def fingerprint(self) -> str:
        """A digest of the function's name and source, or the one that was given."""
        return self._known_as or source_digest(inspect.unwrap(self.function))

    def __repr__(self) -> str:
        return f"step({self.name})"


def reserving(reserve: Usage | Reserve | None) -> Reserve | None:
    """Return the function from an input to the highest cost of its call; it receives a copy."""
    if isinstance(reserve, Usage):
        return lambda _: reserve
    return None if reserve is None else lambda value: reserve(own(value))


def _parameters(function: Function) -> int:
    if not callable(function):
        raise ConfigurationError(f"{function!r} cannot be a step; use a function or a step")
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # some builtins have no signature; they take the value
        return 1
    # A default is the author's choice, except for `ctx`, which is always passed.
    fixed = [
        p
        for p in parameters
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        and (p.default is p.empty or p.name == "ctx")
    ]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return max(1, len(fixed))
    if not fixed and any(
        p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters
    ):
        return 1
    if len(fixed) > 2:
        name = getattr(function, "__name__", function)
        raise ConfigurationError(
            f"{name} takes {len(fixed)} arguments; a step takes a value, or a value and a context"
        )
    return len(fixed)


def _caller(function: Function, count: int, inline: bool) -> _Act:
    called = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    is_async = inspect.iscoroutinefunction(inspect.unwrap(called))
    # `inspect.unwrap` does not unwrap a partial.
    if isinstance(function, functools.partial):
        is_async = inspect.iscoroutinefunction(function.func)

    if is_async:
        by_count: tuple[_Act, ...] = (
            lambda value, ctx: function(),
            lambda value, ctx: function(value),
            function,
        )
        return by_count[count]
    if inline:
        return lambda value, ctx: _now(function, (value, ctx)[:count])
    return thread_caller(function, count)


async def _now(function: Function, args: tuple[object, ...]) -> Json:
    result = function(*args)
    return await result if inspect.isawaitable(result) else result


def as_step(
    step: StepLike[In, Out] | MetricLike, *, name: str = "", purpose: Purpose = "execute"
) -> Step[In, Out]:
    """Return a step as it is, an object of another library by its adapter, and a function as a FunctionStep.

    Raises:
        ConfigurationError: if it is none of these.
    """
    if isinstance(step, Step):
        return step
    adapter = adapted(step, purpose)
    if adapter is None:
        return FunctionStep(cast("Function", step), name=name, typed=True)
    if not isinstance(adapter, Step):
        raise ConfigurationError(
            f"the adapter of {type(step).__name__} returned {adapter!r:.60}, which is not a step"
        )
    return adapter


class StepDecorator(Protocol):
    """The decorator that `step` returns when it is called with options."""

    @overload
    def __call__(self, function: Callable[[In], Awaitable[Out]], /) -> FunctionStep[In, Out]: ...
    @overload
    def __call__(
        self, function: Callable[[In, Context], Awaitable[Out]], /
    ) -> FunctionStep[In, Out]: ...
    @overload
    def __call__(self, function: Callable[[In], Out], /) -> FunctionStep[In, Out]: ...
    @overload
    def __call__(self, function: Callable[[In, Context], Out], /) -> FunctionStep[In, Out]: ...
    @overload
    def __call__(self, function: Callable[[], object], /) -> FunctionStep: ...


class StepOptions(TypedDict, total=False):
    """The options of `step`, which explains them."""

    name: str
    reserve: Usage | Reserve | None
    idempotent: bool
    inline: bool
    fingerprint: str
    on_lost: str


@overload
def step(
    function: Callable[[In], Awaitable[Out]], /, **options: Unpack[StepOptions]
) -> FunctionStep[In, Out]: ...
@overload
def step(
    function: Callable[[In, Context], Awaitable[Out]], /, **options: Unpack[StepOptions]
) -> FunctionStep[In, Out]: ...
@overload
def step(
    function: Callable[[In], Out], /, **options: Unpack[StepOptions]
) -> FunctionStep[In, Out]: ...
@overload
def step(
    function: Callable[[In, Context], Out], /, **options: Unpack[StepOptions]
) -> FunctionStep[In, Out]: ...
@overload
def step(function: Callable[[], object], /, **options: Unpack[StepOptions]) -> FunctionStep: ...
@overload
def step(**options: Unpack[StepOptions]) -> StepDecorator: ...
def step(
    function: Function | None = None,
    *,
    name: str = "",
    reserve: Usage | Reserve | None = None,
    idempotent: bool = True,
    inline: bool = False,
    fingerprint: str = "",
    on_lost: str = "cancel",
) -> FunctionStep | StepDecorator:
    """Make a function a step, as a decorator or a call.

    The function takes no argument, a value, or a value and a Context. An async function is awaited, any
    other runs in a thread.

    Args:
        function: the function; without it, the decorator is returned.
        name: its name in paths. Default: the function's name.
        reserve: the most that one call may cost, or a function of the input that returns it. A budget
            reserves it before the call.
        idempotent: whether it may run twice if the process dies during a call. If not, a person decides.
        inline: whether a plain function runs on the event loop. This saves the thread; a deadline cannot
            interrupt it.
        fingerprint: a name and a version, such as `draft/1`. A recorded run resumes while they stay the
            same. Default: a digest of the bytecode, which another version of Python changes.
        on_lost: `cancel` or `finish` a call in progress when another worker takes the run over, because this one
            was frozen or cut off. The result of the call is not recorded. Default: `cancel`.

    Returns:
        The step, or the decorator.

    Raises:
        ConfigurationError: for a function that takes more than two arguments, or another `on_lost`.

    Example:
        >>> from loopwright import run_sync, step
        >>> @step(inline=True)
        ... def double(value: int) -> int:
        ...     return 2 * value
        >>> run_sync(double, 4).output
        8
    """

    def decorate(inner: Function) -> FunctionStep:
        made_step = FunctionStep(
            inner, name=name, reserve=reserve, idempotent=idempotent, inline=inline,
            fingerprint=fingerprint, on_lost=on_lost, typed=True,
        )  # fmt: skip
        made_step.stub = "" if hasattr(inner, KNOWN_AS) else PYTHON
        return made_step

    return cast("StepDecorator", decorate) if function is None else decorate(function)
