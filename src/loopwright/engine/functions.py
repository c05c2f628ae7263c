"""How functions and objects of users become steps: adapters, fingerprints, declared types and threads.

Objects of other libraries have an adapter, registered here or by an entry point. `as_step` calls `adapted` before
it treats an object as a function: metrics and scorers of other libraries are callable too.

A fingerprint is a digest that changes when the meaning of a step does. A recorded run resumes only with steps of
the same fingerprints, or of one that they had in a former version. A change of this package that gives a step
another fingerprint, although a recorded run may continue with it, raises `VERSION` (once for each release) and
keeps the former text: the property `fingerprint`, decorated with `fingerprinted`, has a branch
`if former_version() < 2:` with what it was before version 2. The steps around it follow by themselves.

A plain function runs in a daemon thread, which a deadline can abandon. The standard pool is not used: its few
workers are joined at exit, so one function that hangs would keep the process from ending. Plain code waits for a
run with an event loop of its own; inside a running event loop, as in a notebook, that one has a thread.
"""

from __future__ import annotations

import asyncio
import collections.abc
import contextlib
import contextvars
import dataclasses
import functools
import hashlib
import inspect
import re
import sys
import threading
import types as python_types
import typing
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import replace
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, cast, runtime_checkable

from typing_extensions import TypeVar

from ..errors import ConfigurationError, LoopwrightWarning
from ..records import Evaluation, Record, Result, codec, own
from ..records.codec import ATOMS, Json
from ..records.typed import ValueType, own_json, value_type

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = [
    "ADAPTERS",
    "ANNOTATION_UNREADABLE",
    "BLOCKING",
    "KNOWN_AS",
    "UNTYPED_OUTPUT",
    "VERSION",
    "AgentLike",
    "AgentOutput",
    "EvaluatesOutput",
    "FunctionTypes",
    "MeasuresTestCase",
    "Purpose",
    "RunnableLike",
    "ScoresOutput",
    "ScoresTask",
    "adapted",
    "changed_parts",
    "digest_of",
    "fingerprinted",
    "former_fingerprints",
    "former_version",
    "in_thread",
    "known_as",
    "parts_of",
    "register",
    "source_digest",
    "thread_caller",
    "types_of",
    "wait_for",
    "wait_shortly",
]

ADAPTERS = "loopwright.adapters"  # the group of entry points
BROKEN_ADAPTER = "adapter_broken"
_OURS = "loopwright"

Purpose = Literal["execute", "evaluate"]
Factory = Callable[[Any, Purpose], object]


Out_co = TypeVar("Out_co", covariant=True, default=Any)


class AgentOutput(Protocol[Out_co]):
    """The result of an agent of pydantic-ai, for type checkers."""

    @property
    def output(self) -> Out_co:
        """The output."""


class AgentLike(Protocol[Out_co]):
    """An agent of pydantic-ai, for type checkers: a step that returns the agent's output."""

    @property
    def output_type(self) -> object:
        """The type of its output."""

    def run(self, user_prompt: str, /) -> Awaitable[AgentOutput[Out_co]]:
        """Run the agent on a prompt."""


class RunnableLike(Protocol):
    """A runnable of LangChain or a graph of LangGraph, for type checkers: its output has no type."""

    @property
    def ainvoke(self) -> Callable[..., Awaitable[Any]]:
        """Its method that runs it."""


class EvaluatesOutput(Protocol):
    """An evaluator of pydantic-evals, for type checkers."""

    @property
    def evaluate_async(self) -> Callable[..., Awaitable[Any]]:
        """Its method that evaluates an output."""


class ScoresOutput(Protocol):
    """A scorer of autoevals, for type checkers."""

    @property
    def eval_async(self) -> Callable[..., Awaitable[Any]]:
        """Its method that scores an output."""


class ScoresTask(Protocol):
    """A scorer of Inspect, for type checkers."""

    def __call__(self, state: Any, target: Any) -> Awaitable[Any]:
        """Score the state of a task."""


class MeasuresTestCase(Protocol):
    """A metric of DeepEval, for type checkers."""

    @property
    def a_measure(self) -> Callable[..., Awaitable[Any]]:
        """Its method that measures a test case."""


@runtime_checkable
class _Adapter(Protocol):
    """An adapter as `interop.Adapter` describes it; without the type of steps, which imports this module."""

    roots: tuple[str, ...]

    def matches(self, target: object) -> bool: ...

    def step(self, target: Any, purpose: Purpose) -> object: ...


@functools.singledispatch
def _registered(target: object, purpose: Purpose) -> object:
    return None


def register(kind: type, factory: Factory) -> None:
    """Let objects of a type be used as steps in this process; subclasses are included.

    Registered types take precedence over adapters. A package registers an `Adapter` instead, which works in each
    process that has the package installed.

    Args:
        kind: The type.
        factory: A function of the object and of the purpose (`execute` or `evaluate`) that returns a step.

    Example:
        >>> from loopwright import run_sync, step
        >>> class Translator:
        ...     def translate(self, text):
        ...         return text.replace("hello", "bonjour")
        >>> register(Translator, lambda target, purpose: step(target.translate))
        >>> run_sync(Translator(), "hello").output
        'bonjour'
    """
    _registered.register(kind)(factory)


def adapted(target: object, purpose: Purpose) -> object:
    """Return an object of another library as a step, or None if no adapter knows it.

    A plain function without attributes is never of another library: most steps are such functions, and the
    entry points of the environment are read for objects only.
    """
    if type(target) is FunctionType and not target.__dict__:
        return None
    if (step := _registered(target, purpose)) is not None:
        return step
    modules = {base.__module__ for base in type(target).__mro__}
    modules.add(str(getattr(target, "__module__", "")))
    # A function that another library decorated has the module of its author, so the attributes that the
    # library set count too.
    if isinstance(target, FunctionType):
        modules |= {type(value).__module__ for value in vars(target).values()}
    # The roots are compared first, so that no adapter imports its library for a foreign object.
    roots = {module.partition(".")[0] for module in modules}
    for adapter in _adapters():
        if not roots.isdisjoint(adapter.roots) and adapter.matches(target):
            return adapter.step(target, purpose)
    return None


@functools.cache
def _adapters() -> tuple[_Adapter, ...]:
    """Return the adapters of the environment: those of other distributions first, each group by name."""
    # Reading metadata takes milliseconds, and most programs have no such objects.
    from importlib.metadata import entry_points

    # Others first: a package may replace a built-in adapter for its own objects.
    points = sorted(
        entry_points(group=ADAPTERS),
        key=lambda point: (point.module.partition(".")[0] == _OURS, point.name),
    )
    return tuple(adapter for point in points if (adapter := _loaded(point)) is not None)


def _loaded(point: EntryPoint) -> _Adapter | None:
    """Return the adapter of an entry point, or None with a warning if it cannot be loaded."""
    try:
        adapter = point.load()
        adapter = adapter() if isinstance(adapter, type) else adapter
    except Exception as error:  # of any kind: a broken package must not stop every program
        problem = f"{type(error).__name__}: {error}"
    else:
        if isinstance(adapter, _Adapter):
            return adapter
        problem = "it has no roots, matches and step"
    warnings.warn(
        LoopwrightWarning(
            f"the adapter {point.name} ({point.value}) cannot be used: {problem}. Update or uninstall its package.",
            code=BROKEN_ADAPTER,
        ),
        stacklevel=2,
    )
    return None


Function = Callable[..., Any]
_Function = TypeVar("_Function", bound=Function)
KNOWN_AS = "__loopwright_step__"  # the attribute that `known_as` sets
VERSION = 2  # of fingerprints; journals of 27 November 2026 and before have 1, those of the 21st and before 0
_version = ContextVar("fingerprint version", default=VERSION)
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # of an object, which differs in each process


if TYPE_CHECKING:
    fingerprinted = functools.cached_property
else:

    class fingerprinted:  # noqa: N801 - a decorator
        """A property `fingerprint` that is kept, and computed anew for a former version."""

        def __init__(self, compute):
            self.compute = compute
            self.__doc__ = compute.__doc__

        def __get__(self, step, owner=None):
            if step is None:
                return self
            if _version.get() != VERSION:
                return self.compute(step)
            kept = step.__dict__.get("fingerprint")
            if kept is None:
                kept = step.__dict__["fingerprint"] = self.compute(step)
            return kept

        def __set__(self, step, value):
            # A data descriptor: otherwise the kept value hides it, also from former versions.
            step.__dict__["fingerprint"] = value


def former_version() -> int:
    """Return the version of fingerprints that is being computed: `VERSION`, or a former one."""
    return _version.get()


def former_fingerprints(step: Any) -> Iterator[str]:
    """Iterate over the fingerprints of a step by version, latest first, and those of its document as it was read then."""
    for version in reversed(range(VERSION + 1)):
        token = _version.set(version)
        try:
            found = [str(step.fingerprint), *([] if step.former is None else [step.former()])]
        finally:
            _version.reset(token)
        yield from found


def parts_of(step: Any) -> dict[str, str]:
    """Return the fingerprints of the parts of a step by path, each after the noun of its kind.

    They name what changed when a run is refused. The rules of a loop are parts of it, as `PATH: KEY`.
    """
    parts: dict[str, str] = {}

    def collect(part: Any, path: str) -> None:
        # Two parts with one name are one entry.
        known = parts.get(path, "").partition(" ")[2]
        parts[path] = f"{part.noun} {digest_of(known, part.fingerprint)[:8]}"
        for key, value in getattr(part, "rules", {}).items():
            parts[f"{path}: {key}"] = f"key {digest_of(repr(value))[:8]}"
        for inner in part.parts():
            collect(inner, f"{path}/{inner.name}")

    collect(step, step.name)
    return parts


def changed_parts(recorded: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the smallest parts that differ, in words: `the prompt write/draft`, `until of write`."""
    differ = {path for path in (*recorded, *now) if recorded.get(path) != now.get(path)}
    words = []
    for path in sorted(differ):
        if any(other.startswith((f"{path}/", f"{path}: ")) for other in differ):
            continue
        owner, _, key = path.partition(": ")
        noun = (now.get(path) or recorded[path]).partition(" ")[0]
        words.append(f"{key} of {owner}" if key else f"the {noun} {owner}")
    return words


def known_as(fingerprint: str) -> Callable[[_Function], _Function]:
    """Return a decorator that sets the fingerprint of a function, such as `adapters.feedback/1`.

    A recorded run then resumes although the function was moved or rewritten, or Python is another version.
    Change the version when the meaning of the function changes.
    """

    def decorate(function: _Function) -> _Function:
        setattr(function, KNOWN_AS, fingerprint)
        return function

    return decorate


def source_digest(function: Function) -> str:
    """Return the fingerprint that `known_as` set, else a digest of a function's name and bytecode."""
    if fingerprint := getattr(function, KNOWN_AS, ""):
        return str(fingerprint)
    code = getattr(function, "__code__", None)
    if code is None:  # a callable object: the method that its class defines
        code = getattr(getattr(type(function), "__call__", None), "__code__", None)  # noqa: B004
    # Without the function around it: moving a function must not invalidate its recorded runs.
    name = str(getattr(function, "__qualname__", function))
    if _version.get() < 1:
        name = f"{getattr(function, '__module__', '')}.{name}"
    else:
        name = name.rpartition("<locals>.")[2]
    if isinstance(function, functools.partial):
        bound = repr((function.args, sorted(function.keywords.items())))
        return digest_of("partial", source_digest(function.func), _ADDRESS.sub("", bound))
    return digest_of(_ADDRESS.sub("", name), _code_digest(code) if code is not None else "")


@functools.lru_cache(maxsize=4096)
def _code_digest(code: CodeType) -> str:
    # Bytecode rather than source: it always exists, and comments do not change it.
    consts = [
        _code_digest(c)
        if isinstance(c, CodeType)
        else repr(sorted(c, key=repr) if isinstance(c, frozenset) else c)
        for c in code.co_consts
    ]
    return digest_of(code.co_code.hex(), repr(code.co_names), *consts)


def digest_of(*parts: str) -> str:
    """Return a digest of texts as 16 hex digits."""
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


ANNOTATION_UNREADABLE = "annotation_unreadable"  # codes of warnings
UNTYPED_OUTPUT = "untyped_output"
_AWAITABLE = (collections.abc.Awaitable, collections.abc.Coroutine)


class FunctionTypes:
    """The declared types of a function, each None if there is none.

    `problem` is a sentence on an annotation that cannot be read. `like` is the step whose input type the
    output has, if the function declares none: an adapter makes the input of `execute`. `read` returns the
    function's own copy of a recorded value, in its declared type.
    """

    __slots__ = ("input", "json_output", "like", "name", "output", "problem", "read")

    def __init__(
        self,
        name: str,
        input: ValueType | None = None,
        output: ValueType | None = None,
        problem: str = "",
    ) -> None:
        self.name = name
        self.input = input
        self.output = output
        self.problem = problem
        self.like: Any = None
        self.read: Callable[[Json], object] = own if input is None else self._read
        # Whether an output that is JSON is written as it is, without the declared type.
        self.json_output = not problem and (output is None or output.is_json)

    def for_input_as_json(self) -> FunctionTypes:
        """Return the types of a step that has this output and whose own input is JSON."""
        result = FunctionTypes(self.name, None, self.output, self.problem)
        result.read = own_json
        return result

    def for_reader(self) -> FunctionTypes:
        """Return the types of a step that passes its input to this function and has an output of its own."""
        return FunctionTypes(self.name, self.input, None, self.problem)

    def _read(self, value: Json) -> object:
        kind, declared = type(value), self.input
        # A record, such as the Iteration that adapt receives, is a type of its own.
        if declared is None or kind in declared.flat or isinstance(value, Record):
            return own(value)
        return declared.read(value, self.name)

    def write(self, output: object, clean: Callable[[Json], Json] | None) -> Json:
        """Return the output as JSON that carries its declared type, without secrets."""
        if (declared := self.output) is not None and not isinstance(output, Evaluation):
            return declared.write(output, clean)
        if self.like is not None and type(output) not in ATOMS:
            expected: ValueType | None = self.like.input_type
            if expected is not None and not expected.is_json:
                return expected.write_input(output, what="output")
        plain = codec.normalise(output, what="output")
        return plain if clean is None else clean(plain)

    def untyped(self, output: object) -> str:
        """Return the sentence on a dataclass or model without a declared type, or ""."""
        kind = type(output)
        if kind in ATOMS or kind is dict or kind is list or self.output is not None:
            return ""
        if self.like is not None and self.like.input_type is not None:
            return ""
        # `model_dump` rather than an import of pydantic: most programs have no models.
        model = dataclasses.is_dataclass(kind) or hasattr(kind, "model_dump")
        if not model or isinstance(output, Record):
            return ""
        return (
            f"{self.name} returned {kind.__name__} and has no return annotation, so the next step "
            f"receives a dict; add -> {kind.__name__}"
        )


def types_of(function: Callable[..., Any], name: str) -> FunctionTypes:
    """Return the declared types of a function, by its annotations."""
    if isinstance(function, type):
        is_model = dataclasses.is_dataclass(function) or hasattr(function, "model_fields")
        return FunctionTypes(name, None, value_type(function, name) if is_model else None)
    hints, parameters, problem = _hints(function)
    declared: dict[str, ValueType | None] = {}
    first = next(iter(parameters), "")
    for place in (first, "return"):
        annotation = hints.get(place)
        if annotation is None:
            continue
        if place == "return":
            if typing.get_origin(annotation) in _AWAITABLE:  # the type that it returns
                annotation = next(reversed(typing.get_args(annotation)), None)
        elif parameters[place].default is not inspect.Parameter.empty:
            annotation = typing.Union[annotation, None]  # noqa: UP007 - not all annotations have |
        try:
            declared[place] = value_type(annotation, name)
        except ConfigurationError as error:
            problem = problem or str(error)
    if problem:
        problem = f"{name}: {problem}; its values are passed as JSON"
    return FunctionTypes(name, declared.get(first), declared.get("return"), problem)


def _hints(function: Any) -> tuple[dict[str, Any], dict[str, inspect.Parameter], str]:
    """Return the annotations by name, the parameters, and why one of them cannot be read."""
    inner = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    if not inspect.isroutine(inner):
        inner = getattr(inner, "__call__", inner)  # noqa: B004 - a callable object
    annotations = getattr(inner, "__annotations__", None)
    if not annotations:
        return {}, {}, ""
    try:
        parameters = dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        parameters = {}
    hints: dict[str, Any] = {}
    problem = ""
    # A decorator has other globals than the function whose annotations it copied.
    names = inspect.unwrap(inner)
    read_here = {next(iter(parameters), ""), "return"}
    for name, annotation in annotations.items():
        # The annotation of `ctx` often names a class that only type checkers import.
        if name not in read_here:
            continue
        if not isinstance(annotation, str):
            hints[name] = annotation
            continue
        try:
            # One by one: an annotation that cannot be read must not hide the others.
            holder = python_types.SimpleNamespace(__annotations__={name: annotation})
            read = typing.get_type_hints(holder, names.__globals__, include_extras=True)
        except Exception as error:  # an annotation is any expression of the user's
            problem = f"the annotation {annotation!r} cannot be read ({codec.error_line(error)})"
        else:
            hints[name] = read[name]
    return hints, parameters, problem


T = TypeVar("T")

AT_ONCE = 256  # threads: more would use memory without running sooner
_room = threading.BoundedSemaphore(AT_ONCE)  # one per process: it holds no state of a run
BLOCKING = "blocking_event_loop"  # the code of the warning
_SENTENCE = "run_sync blocks the event loop that it is called in; use: await run(…)"
# Seconds between two checks for Ctrl-C, which some systems do not deliver to a wait.
_INTERVAL = 0.2


async def in_thread(function: Callable[..., T], *args: object) -> T:
    """Call a plain function in a new thread, and return its value or raise its error.

    A cancelled caller stops waiting at once. The thread continues to its end, and its value is dropped.
    """
    # Polled: a semaphore of asyncio belongs to one event loop, and there may be several.
    while not _room.acquire(blocking=False):
        await asyncio.sleep(0.005)
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def work() -> None:
        error: BaseException | None = None
        value = None
        try:
            value = context.run(function, *args)
        except BaseException as raised:  # of any kind: the caller receives it
            error = raised
        finally:
            _room.release()
        with contextlib.suppress(RuntimeError):  # the event loop is closed: no caller waits
            loop.call_soon_threadsafe(_hand_over, future, value, error)

    # A virtual clock waits for the thread: it cannot see that one is about to wake its event loop.
    waiting: Callable[[], AbstractContextManager[None]] = getattr(
        loop, "awaiting_thread", contextlib.nullcontext
    )
    with waiting():
        threading.Thread(target=work, name=f"loopwright {function!r:.60}", daemon=True).start()
        return await future


def thread_caller(function: Callable[..., Json], count: int) -> Callable[..., Awaitable[Json]]:
    """Return a function of a value and a context that passes the first `count` of them to `function` in a new thread.

    If the value of `function` is awaitable, it is awaited in the event loop.
    """

    async def call(value: object, ctx: object) -> Json:
        result = await in_thread(function, *(value, ctx)[:count])
        return await result if inspect.isawaitable(result) else result

    return call


def _hand_over(future: asyncio.Future[T], value: T | None, error: BaseException | None) -> None:
    if future.done():  # the caller was cancelled
        return
    if isinstance(error, StopIteration):  # a future cannot carry it
        error = RuntimeError("the function raised StopIteration")
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(cast("T", value))


def wait_for(start: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """Run a coroutine to its end and return its result; Ctrl-C cancels it.

    Inside a running event loop it gets a thread, another event loop and a copy of the context variables.
    """
    inside = _is_inside_event_loop()
    result = wait_shortly(start)
    ipython = sys.modules.get("IPython")
    # In a cell of IPython `run_sync` blocks nothing but the cell.
    if not inside or (ipython is not None and ipython.get_ipython() is not None):
        return result
    warnings.warn(LoopwrightWarning(_SENTENCE, code=BLOCKING), stacklevel=4)
    return replace(result, warnings=(*result.warnings, f"{BLOCKING}: {_SENTENCE}"))


def wait_shortly(start: Callable[[], Coroutine[object, object, T]]) -> T:
    """Do the same for a coroutine that reads or writes a journal, which is no reason to warn."""
    return _run_in_thread(start) if _is_inside_event_loop() else _run(asyncio.Runner(), start)


def _is_inside_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _run(runner: asyncio.Runner, start: Callable[[], Coroutine[object, object, T]]) -> T:
    results: list[T] = []

    async def main() -> None:
        # The main task returns nothing, because asyncio formats its result when it restores the signal
        # handler. The coroutine has another task, so that its waits do not resume the main task too.
        results.append(await asyncio.create_task(start()))

    with runner:
        runner.run(main())
    return results[0]


class _Thread(threading.Thread, Generic[T]):
    """A thread that runs a coroutine in another event loop."""

    def __init__(self, start: Callable[[], Coroutine[object, object, T]]) -> None:
        super().__init__(name="loopwright run_sync", daemon=True)
        self.results: list[T] = []
        self.error: BaseException | None = None
        self.ended = threading.Event()
        self._start_run = start
        self._context = contextvars.copy_context()
        self._lock = threading.Lock()
        self._cancelled = False
        self._task: asyncio.Task[Any] | None = None

    def run(self) -> None:
        try:
            self._context.run(self._run_coroutine)
        except BaseException as error:  # raised again by the caller
            self.error = error
        finally:
            self.ended.set()

    def _run_coroutine(self) -> None:
        async def begin() -> T:
            # The lock orders this and `cancel`: a cancellation before the task exists is not lost.
            with self._lock:
                self._task = asyncio.current_task()
                if self._cancelled:
                    raise asyncio.CancelledError
            return await self._start_run()

        self.results.append(_run(asyncio.Runner(), begin))

    def cancel(self) -> None:
        """Cancel the coroutine."""
        with self._lock:
            self._cancelled = True
            if self._task is not None:
                with contextlib.suppress(RuntimeError):  # it ended, and its event loop is closed
                    self._task.get_loop().call_soon_threadsafe(self._task.cancel)


def _run_in_thread(start: Callable[[], Coroutine[object, object, T]]) -> T:
    thread = _Thread(start)
    try:
        thread.start()
        while not thread.ended.wait(_INTERVAL):
            pass
    except BaseException:  # Ctrl-C
        thread.cancel()
        # Joined, so that the run has released its journal when the caller continues.
        if thread.ident is not None:
            thread.join()
        raise
    if thread.error is not None:
        raise thread.error
    return thread.results[0]
