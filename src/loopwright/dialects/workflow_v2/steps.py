"""The steps of `workflow/v2.0` as native steps, with the servers that they name and the consensus of several models.

A file beside the document defines how servers are started. It is the one that clients of the Model Context Protocol
share: `server_config.json`, `mcp.json`, `.mcp.json` or `config.yaml`, with `mcpServers` (or `servers`) by name:
`{"command": "npx", "args": […], "env": {…}}` or `{"url": "https://…", "headers": {…}}`.

A consensus is one prompt to several models, and the answer of the required share of them:

1. All models are called at once. Those without an answer are left out; at least two answers are needed.
2. If every answer begins with a verdict (YES, APPROVED, or a word that the prompt offers in capitals), the
   verdicts are the votes and the output is the verdict.
3. Otherwise an answer with SUCCESS and without FAIL is SUCCESS, one with FAIL is FAIL, and any other is its
   words in upper case. The output is the first answer with the winning vote.
4. Without agreement the step fails, and it is not retried.
"""

from __future__ import annotations

import functools
import heapq
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import yaml

from ...documents.yaml.bounds import shorten
from ...documents.yaml.reader import Location, Source
from ...engine.composites import run_all
from ...engine.context import Context
from ...engine.step import CompositeStep, Step, digest_of, fingerprinted
from ...errors import StepError, nearest
from ...models.reply_text import normalise_reply
from ...prompts.prompt import Prompt
from ...records import Reason, Result, Status, codec
from ...records.codec import Json
from .fields import (
    MAX_NAMES,
    ConsensusV2,
    ExecutionSettings,
    InheritedV2,
    InvalidPlaceholder,
    LoopV2,
    ModelCallV2,
    NameTable,
    Place,
    Rewriter,
    StepV2,
    placeholders,
    quoted,
)

__all__ = [
    "CALL_TIMEOUT",
    "FILES",
    "VERDICTS",
    "Consensus",
    "DependencyCycle",
    "Servers",
    "StepTranslator",
    "TranslatedStep",
    "condition",
    "in_order",
    "offered_verdicts",
    "rounds_of",
    "votes_of",
    "written_order",
]

FILES = ("server_config.json", "mcp.json", ".mcp.json", "config.yaml")
ROUNDS = 10  # the dialect's default for replies with tool calls in one step
_MAX_BYTES = 1 << 20  # of the file, the limit of documents
ServerReport = Callable[[tuple[str | int, ...], str], None]


class Servers:
    """The servers that steps name, from the file beside the document or in the project's root.

    `native` are the servers in use, as fields of native documents, by name.
    """

    def __init__(self, folders: list[Path], report: ServerReport) -> None:
        self.native: dict[str, dict[str, Json]] = {}
        self._report = report
        self._folders = folders
        self._defined: dict[str, Json] | None = None
        self._file = ""

    def tools(self, names: list[str], at: tuple[str | int, ...]) -> list[str]:
        """Return the servers that are defined; the others are problems."""
        result = []
        for i, name in enumerate(dict.fromkeys(names)):
            problem = self._find(name)
            if problem:
                self._report((*at, i), problem)
            else:
                result.append(name)
        return result

    def _find(self, name: str) -> str:
        """Add a server by its name; return the problem, or ""."""
        if name in self.native:
            return ""
        if self._defined is None:
            self._defined = self._read()
        if name not in self._defined:
            if not self._file:
                return (
                    f"no file defines the server {name!r}; add {FILES[0]} beside "
                    f'the document: {{"mcpServers": {{"{name}": {{"command": …, "args": […]}}}}}}'
                )
            entries = ", ".join(list(self._defined)[:12]) or "none"
            hint = nearest(name, self._defined) or f"; it has: {entries}"
            return f"{self._file} has no server {name!r}{hint}"
        try:
            self.native[name] = _native(self._defined[name])
        except ValueError as error:
            return f"{self._file}: {name}: {error}"
        return ""

    def _read(self) -> dict[str, Json]:
        for folder in self._folders:
            for file in (folder / name for name in FILES):
                if file.is_file() and file.stat().st_size <= _MAX_BYTES:
                    result = _servers_in(file)
                    if result is not None:
                        self._file = file.name
                        return result
        return {}


def _servers_in(file: Path) -> dict[str, Json] | None:
    try:
        value = yaml.safe_load(file.read_bytes())  # JSON is valid YAML
    except (OSError, yaml.YAMLError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(value, Mapping):
        return None
    for key in ("mcpServers", "servers"):
        if isinstance(value.get(key), Mapping):
            return {str(name): one for name, one in value[key].items()}
    return None


def _native(value: Json) -> dict[str, Json]:
    """Return a server in the form of native documents.

    Raises:
        ValueError: With the problem.
    """
    if not isinstance(value, Mapping):
        raise ValueError("expected a mapping with command or url")
    url = value.get("url")
    if isinstance(url, str):
        headers = _texts(value, "headers")
        return {"url": url, **({"headers": headers} if headers else {})}
    command, args = value.get("command"), value.get("args") or []
    words = command if isinstance(command, list) else [command]
    if not all(isinstance(word, str) and word for word in words) or not isinstance(args, list):
        raise ValueError('expected "command", a program, and "args", a list; or "url"')
    env = _texts(value, "env")
    return {"command": [*words, *map(str, args)], **({"env": env} if env else {})}


def _texts(values: Mapping[str, Json], key: str) -> dict[str, str]:
    result = values.get(key) or {}
    if not isinstance(result, Mapping):
        raise ValueError(f"{key}: expected a mapping of texts")
    return {str(name): str(value) for name, value in result.items()}


def rounds_of(step: StepV2, execution: ExecutionSettings) -> int:
    """Return the maximum of replies with tool calls in a step."""
    return step.max_iterations or execution.max_iterations or ROUNDS


_SIGN = re.compile(r"==|!=|&&|\|\||[<>]=?")
_QUOTATION = re.compile(r"\"[^\"]*\"|'[^']*'")
_WORD = re.compile(r"[\w./%+-]+(?: [\w./%+-]+)*")


class _Side(NamedTuple):
    """One side of a comparison: an expression, or a literal text."""

    text: str
    written: bool = False

    @property
    def plain(self) -> str:
        """The side as an expression of trimmed text in lower case, because this dialect ignores both."""
        if self.written:
            return quoted(self.text.strip().lower())
        return f"{self.text} | trim | lower"


def condition(text: str, rewriter: Rewriter, place: Place) -> str:
    """Return an `if:` as a native expression.

    Raises:
        InvalidPlaceholder: For a name that cannot mean anything, or more than one comparison.
    """
    bare = text.strip()
    bare = (
        bare[1:] if bare.startswith("${{") else bare
    )  # the syntax of GitHub Actions is accepted too
    spans = [(start, bare.index("}}", start) + 2) for _, start in placeholders(bare)]
    if spans == [(0, len(bare))]:
        inner = bare[2:-2].strip()
        split = _split(inner, [])
        if split is None:
            return _holds(_Side(rewriter.expression(inner, place)))
        remaining, sign, right = split
        first = _named(remaining, rewriter, place, or_word=False)
        return _compared(first, sign, _named(right, rewriter, place, or_word=True))
    split = _split(bare, spans)
    if split is None:
        return _holds(_filled(bare, rewriter, place))
    remaining, sign, right = split
    return _compared(_filled(remaining, rewriter, place), sign, _filled(right, rewriter, place))


def _split(text: str, spans: list[tuple[int, int]]) -> tuple[str, str, str] | None:
    """Split a text at its only comparison outside placeholders and quotes."""
    closed = [*spans, *(result.span() for result in _QUOTATION.finditer(text))]
    signs = [
        sign
        for sign in _SIGN.finditer(text)
        if not any(start < sign.start() < end for start, end in closed)
    ]
    if not signs:
        return None
    if len(signs) > 1 or signs[0][0] not in ("==", "!="):
        raise InvalidPlaceholder(
            f"{shorten(text)!r} is not a single comparison; "
            'write {{NAME}} == "VALUE", or != for the opposite'
        )
    return text[: signs[0].start()].strip(), signs[0][0], text[signs[0].end() :].strip()


def _named(side: str, rewriter: Rewriter, place: Place, *, or_word: bool) -> _Side:
    """Return a side inside the braces: a quoted text, a number, a name, or a bare word."""
    if _QUOTATION.fullmatch(side):
        return _Side(side[1:-1], written=True)
    if not _WORD.fullmatch(side):
        raise InvalidPlaceholder(f"{shorten(side)!r} is neither a name nor a quoted text")
    if side.isdigit():
        return _Side(side, written=True)
    if not or_word:
        return _Side(rewriter.expression(side, place))
    own = rewriter.own(side, place)
    return _Side(side, written=True) if own is None else _Side(own)


def _filled(side: str, rewriter: Rewriter, place: Place) -> _Side:
    """Return a side with its own placeholders, joined to one expression."""
    result = placeholders(side)
    if not result:
        return _Side(side[1:-1] if _QUOTATION.fullmatch(side) else side, written=True)
    parts, done = [], 0
    for name, start in result:
        parts += [quoted(side[done:start])] if start > done else []
        parts.append(rewriter.expression(name, place))
        done = side.index("}}", start) + 2
    parts += [quoted(side[done:])] if done < len(side) else []
    return _Side(parts[0] if len(parts) == 1 else f"({' ~ '.join(parts)})")


def _holds(side: _Side) -> str:
    # The values that are false in the guide of the dialect; a skipped step has the output "".
    return f'{side.plain} not in ["", "false", "0"]'


def _compared(remaining: _Side, sign: str, right: _Side) -> str:
    sides = [remaining, right]
    if any(side.text.endswith(".exit_reason") for side in sides if not side.written):
        # The dialect's word for a failed iteration is "failure"; here it is "error".
        sides = [
            _Side("error", written=True)
            if side.written and side.text.lower() == "failure"
            else side
            for side in sides
        ]
    return f" {sign} ".join(side.plain for side in sides)


class DependencyCycle(Exception):
    """Steps that need each other. `names` is the cycle, with its first name again at the end."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__("steps need each other: " + " -> ".join(names))
        self.names = tuple(names)


@dataclass
class TranslatedStep:
    """A step or loop during its translation.

    `at` is its path in the document, `native` the native step. `places` maps paths inside the native step to
    paths in the document. `needs` are the steps that must run before, in the order of mention. `exposed` are
    the steps of called workflows that it names. `uses_last` means that it names the loop that ended last.
    """

    name: str
    at: Location
    loops: bool = False
    native: dict[str, Json] = field(default_factory=dict)
    places: dict[Location, Location] = field(default_factory=dict)
    needs: dict[str, None] = field(default_factory=dict)
    exposed: dict[tuple[str, str], Location] = field(default_factory=dict)
    uses_last: bool = False


def written_order(source: Source) -> Iterator[Location]:
    """Iterate over the paths of steps and loops, block by block in document order."""
    for stage in source.stages:
        for index in range(stage.start, stage.end):
            yield (stage.key, index)


def in_order(elements: Sequence[TranslatedStep]) -> list[TranslatedStep]:
    """Return steps in running order: document order, where a step moves behind its needs.

    Raises:
        DependencyCycle: If some need each other.
    """
    # A heap instead of repeated searches, which would take quadratic time for thousands of steps.
    names = {element.name for element in elements}
    missing = [sum(name in names for name in element.needs) for element in elements]
    waiting: dict[str, list[int]] = {name: [] for name in names}
    for i, element in enumerate(elements):
        for name in element.needs:
            waiting.get(name, []).append(i)
    ready = [i for i, count in enumerate(missing) if not count]  # a sorted list is a heap
    order: list[int] = []
    while ready:
        chosen = heapq.heappop(ready)
        order.append(chosen)
        for i in waiting[elements[chosen].name]:
            missing[i] -= 1
            if not missing[i]:
                heapq.heappush(ready, i)
    if len(order) < len(elements):
        raise DependencyCycle(_cycle([element for i, element in enumerate(elements) if missing[i]]))
    return [elements[i] for i in order]


def _cycle(remaining: Sequence[TranslatedStep]) -> list[str]:
    needs = {element.name: element.needs for element in remaining}
    path = [remaining[0].name]
    while True:
        following = next(name for name in needs[path[-1]] if name in needs)
        if following in path:
            return [*path[path.index(following) :], following]
        path.append(following)


CALL_TIMEOUT = 60.0  # seconds of one model call, the default of the dialect
MISSING = {
    "embeddings": "embedding models are not connected",
    "rag": "there is no vector store to search",
}
NO_EFFECT = {
    "input": "the prompt of a step is its run:, which can contain {{input}} and other names",
    "execution_order": "steps run in document order, moved later by needs",
    "max_iterations": "it limits tool calls, and the step has no tools",
}
Report = Callable[[Location, str], None]


@dataclass
class StepTranslator:
    """Translates the steps and loops of a document, and reports problems at their positions."""

    source: Source
    names: NameTable
    execution: ExecutionSettings
    report: Report
    note: Report
    servers: Servers
    inherited: list[str]
    native_loop: Callable[[StepTranslator, LoopV2, TranslatedStep, Location], None]

    def step(self, spec: StepV2, at: Location) -> TranslatedStep:
        """Return a step as a native one."""
        element = self._element(spec.name, at, loops=spec.loop is not None)
        kind = spec.kind
        if kind in MISSING:
            self.report((*at, kind), f"{kind} steps are not supported: {MISSING[kind]}")
            return element
        if kind == "loop":
            assert spec.loop is not None
            self.native_loop(self, spec.loop, element, (*at, "loop"))
            if spec.timeout is not None:
                element.native["timeout"] = spec.timeout
        else:
            getattr(self, f"_{kind}")(spec, element, at)
        self._needs(element, spec.needs, at)
        if spec.if_ is not None:
            native = self._rewritten(element, (*at, "if"), spec.if_, Place(spec.name), condition)
            element.native["if"] = native
            element.native.setdefault(
                "otherwise", ""
            )  # in this dialect a skipped step has an empty output
        self._unused(spec, kind, at, element.native)
        return element

    def loop(self, spec: LoopV2, at: Location) -> TranslatedStep:
        """Return a loop of `loops:` as a native step."""
        element = self._element(str(spec.name), at, loops=True)
        self.native_loop(self, spec, element, at)
        self._needs(element, spec.needs, at)
        return element

    def _element(self, name: str, at: Location, *, loops: bool) -> TranslatedStep:
        return TranslatedStep(name, at, loops, {"name": name}, {(): at})

    def _needs(self, element: TranslatedStep, needs: list[str], at: Location) -> None:
        for i, name in enumerate(needs):
            if name == element.name:
                self.report((*at, "needs", i), f"{name!r} cannot need itself")
            elif name not in self.names.steps and name not in self.names.loops:
                others = islice((*self.names.steps, *self.names.loops), MAX_NAMES)
                hint = nearest(name, sorted(set(others) - {element.name}))
                self.report((*at, "needs", i), f"there is no step or loop {name!r}{hint}")
        written = (name for name in needs if name != element.name)
        element.needs = {**dict.fromkeys(written), **element.needs}

    # Texts.

    def _rewritten(
        self,
        element: TranslatedStep,
        at: Location,
        text: str,
        place: Place,
        rewrite: Callable[[str, Rewriter, Place], str],
    ) -> str:
        """Return a text as a native template, and add the names that it needs to its step."""
        rewriter = Rewriter(self.names, lambda sentence: self.note(at, sentence))
        try:
            native = rewrite(text, rewriter, place)
        except InvalidPlaceholder as problem:
            self.report(at, str(problem))
            return ""
        element.needs |= rewriter.needs
        element.exposed |= {key: at for key in rewriter.exposed if key not in element.exposed}
        element.uses_last = element.uses_last or rewriter.uses_last
        return native

    def text(self, element: TranslatedStep, at: Location, text: str, place: Place) -> str:
        """Return a text as a native template."""
        return self._rewritten(element, at, text, place, lambda t, rewriter, p: rewriter.text(t, p))

    def variables(
        self, element: TranslatedStep, at: Location, value: Mapping[str, Json], place: Place
    ) -> dict[str, Json]:
        """Return variables for a called workflow. A scalar becomes its text in the document."""
        return {key: self.value(element, (*at, key), item, place) for key, item in value.items()}

    def value(self, element: TranslatedStep, at: Location, value: Json, place: Place) -> Json:
        if isinstance(value, dict):
            return self.variables(element, at, value, place)
        if isinstance(value, list):
            return [self.value(element, (*at, i), item, place) for i, item in enumerate(value)]
        # The text as written, so that `1.10` does not become 1.1.
        written = "" if value is None else self.source.text(at)
        return self.text(element, at, written if written is not None else str(value), place)

    # Kinds of steps.

    def _run(self, spec: StepV2, element: TranslatedStep, at: Location) -> None:
        native = element.native
        native["prompt"] = self.text(element, (*at, "run"), spec.run or "", Place(spec.name))
        element.places |= {
            ("prompt",): (*at, "run"),
            ("model",): (*at, "provider"),
            ("models",): (*at, "providers"),
        }
        if spec.providers:
            native["models"] = [f"{t.provider}:{t.model}" for t in spec.providers]
        else:
            native |= self.model_field(spec, [self.execution], at)
        native |= call_settings(spec)
        tools = self.inherited
        if "servers" in spec.model_fields_set:
            tools = self.servers.tools(spec.servers, (*at, "servers"))
            element.places[("tools",)] = (*at, "servers")
        if tools:
            native |= {"tools": tools, "max_tool_rounds": rounds_of(spec, self.execution)}
        self._failure(spec, native)

    def _failure(self, spec: StepV2, native: dict[str, Json]) -> None:
        inherited = "continue" if self.execution.on_error == "continue" else "halt"
        expected = "halt" if spec.on_failure == "fail" else spec.on_failure or inherited
        if expected == "halt":
            return
        native["on_failure"] = expected
        if expected == "continue":
            native["otherwise"] = ""
        elif spec.max_retries is not None:
            native["max_retries"] = spec.max_retries

    def _template(self, spec: StepV2, element: TranslatedStep, at: Location) -> None:
        assert spec.template is not None
        native = element.native
        native["workflow"] = spec.template.name
        element.places[("workflow",)] = (*at, "template", "name")
        element.places[("with",)] = (*at, "template", "with")
        if spec.template.with_:
            place = Place(spec.name)
            native["with"] = self.variables(
                element, (*at, "template", "with"), spec.template.with_, place
            )
        else:
            native["input"] = ""
        if spec.timeout is not None:
            native["timeout"] = spec.timeout
        self._failure(spec, native)

    def _consensus(self, spec: StepV2, element: TranslatedStep, at: Location) -> None:
        assert spec.consensus is not None
        result: ConsensusV2 = spec.consensus
        inside = (*at, "consensus")
        prompt = self.text(element, (*inside, "prompt"), result.prompt, Place(spec.name))
        voters = []
        for i, voter in enumerate(result.executions):
            place = (*inside, "executions", i)
            # Its own fields, otherwise the step's. Model and provider belong together.
            settings = {**call_settings(spec), **call_settings(voter)}
            voters.append(self.model_field(voter, [spec, self.execution], place) | settings)
            element.places["consensus", "voters", i] = place
            element.places["consensus", "voters", i, "model"] = (*place, "provider")
        element.places[("consensus",)] = inside
        consensus: dict[str, Json] = {"prompt": prompt, "voters": voters, "require": result.require}
        if result.allow_partial is False:
            consensus["allow_failures"] = False
        element.native["consensus"] = consensus
        if result.timeout is not None:
            element.native["timeout"] = result.timeout
        if spec.on_failure not in (None, "halt", "fail"):
            self.note(
                (*at, "on_failure"),
                "a consensus that is not reached always ends the workflow",
            )

    # Models.

    def model_field(
        self, spec: ModelCallV2, above: list[InheritedV2], at: Location
    ) -> dict[str, Json]:
        """Return the field `model` if a spec sets provider or model; the other one is inherited."""
        if spec.provider is None and spec.model is None:
            return {}
        for outer in above:
            target = outer.providers[0] if outer.providers else outer
            provider = spec.provider or target.provider
            model = spec.model
            # A model of another provider does not exist at this one.
            if model is None and target.provider == provider:
                model = target.model
            if provider and model:
                return {"model": f"{provider}:{model}"}
        missing, value = ("model", "provider") if spec.model is None else ("provider", "model")
        self.report((*at, value), f"{value} is set without {missing}; set both")
        return {}

    def _unused(self, spec: StepV2, kind: str, at: Location, native: Mapping[str, Json]) -> None:
        """Note fields that have no effect here."""
        value = spec.model_fields_set
        for name, why in NO_EFFECT.items():
            if name in value and not (name == "max_iterations" and "tools" in native):
                self.note((*at, name), f"{name} has no effect: {why}")
        if kind == "loop" and spec.run is not None:
            self.note((*at, "run"), "run has no effect beside loop, which calls a workflow")
        if kind in ("template", "loop"):
            for name in ("provider", "model", "providers", "temperature", "max_tokens"):
                if name in value:
                    self.note(
                        (*at, name), f"{name} has no effect here; the called workflow sets it"
                    )


def call_settings(spec: ModelCallV2) -> dict[str, Json]:
    """Return the settings of a model call, without the model itself."""
    native = {
        "temperature": spec.temperature,
        "max_tokens": spec.max_tokens,
        "answer_timeout": spec.timeout,
    }
    return {name: value for name, value in native.items() if value is not None}


# Synonyms: the first word of each text is the vote.
_SAME = (
    "YES", "NO", "APPROVED APPROVE", "REJECTED REJECT", "ACCEPTED ACCEPT", "DENIED DENY",
    "PASS PASSED", "FAIL FAILED FAILURE", "SUCCESS SUCCEEDED", "SAFE", "UNSAFE", "VALID", "INVALID",
    "TRUE", "FALSE", "CORRECT", "INCORRECT", "OK",
)  # fmt: skip
VERDICTS = {word: line.split()[0] for line in _SAME for word in line.split()}
_LEADING = re.compile(r"\W*([^\W\d_][\w-]*)")
_CAPITALS = re.compile(r"\b[A-Z][A-Z_-]+\b")
_MAX_VERDICTS = 3  # answers with more different first words are sentences, not verdicts


@dataclass(frozen=True)
class Consensus(CompositeStep):
    """Several prompts whose answers must agree; `offered` are the verdicts in the prompt."""

    name: str
    voters: tuple[Prompt, ...]
    require: str = "majority"
    allow_failures: bool = True
    offered: frozenset[str] = frozenset()

    def parts(self) -> Iterable[Step]:
        return self.voters

    @fingerprinted
    def fingerprint(self) -> str:
        """A digest of the voters and of the required share."""
        return digest_of("consensus", self.require, *(v.fingerprint for v in self.voters))

    async def run(self, value: Json, ctx: Context) -> Result:
        """Call all models and count the votes."""
        jobs = [
            functools.partial(self._ask, n, v, value, ctx) for n, v in enumerate(self.voters, 1)
        ]
        replies = await run_all(jobs)
        answers = [reply for reply in replies if not isinstance(reply, StepError)]
        failed = [reply for reply in replies if isinstance(reply, StepError)]
        if failed and (not self.allow_failures or len(answers) < 2):
            detail = f"{len(failed)} of {len(self.voters)} voters gave no answer: {failed[0]}"
            raise StepError(detail, path=ctx.path, kind="no_consensus", retryable=False)
        for error in failed:
            ctx.warn(f"a voter gave no answer and is left out: {error}", code="voter_failed")
        votes, outputs = votes_of(answers, self.offered)
        # A Counter keeps the order of the voters, so the winner of a tie is reproducible.
        counts = Counter(votes)
        winner, count = counts.most_common(1)[0]
        tally = ", ".join(f"{vote[:60]!r} {n}" for vote, n in counts.items())
        if self.require == "unanimous":
            reached = count == len(votes)
        else:
            # In integers: 2/3 of 3 voters must be exactly 2.
            share = 3 * count >= 2 * len(votes)
            reached = share if self.require == "2/3" else 2 * count > len(votes)
        if not reached:
            detail = f"no consensus: {self.require} is required, and the answers are {tally}"
            # Not retried: the voters would be asked the same question again.
            raise StepError(detail, path=ctx.path, kind="no_consensus", retryable=False)
        output = outputs[votes.index(winner)]
        return Result(
            Status.SATISFIED, Reason.COMPLETED, f"consensus: {tally}", output, name=self.name
        )

    async def _ask(self, number: int, voter: Prompt, value: Json, ctx: Context) -> str | StepError:
        inner = ctx.child(ctx.below(f"voter-{number}"))
        try:
            return codec.text_of((await voter.run(value, inner)).output)
        except StepError as error:
            return error


def votes_of(answers: Sequence[str], offered: Collection[str] = ()) -> tuple[list[str], list[str]]:
    """Return the vote of each answer, and the output if that vote wins.

    Example:
        >>> votes_of(["Approved, because it is short", "**APPROVE**"])
        (['APPROVED', 'APPROVED'], ['APPROVED', 'APPROVE'])
        >>> votes_of(["It is Paris", " it is  paris"])
        (['IT IS PARIS', 'IT IS PARIS'], ['It is Paris', ' it is  paris'])
    """
    leading = [_LEADING.match(normalise_reply(answer)) for answer in answers]
    words = [match[1].upper() if match else "" for match in leading]
    votes = [VERDICTS.get(word, word) for word in words]
    if all(w in VERDICTS or w in offered for w in words) and len(set(votes)) <= _MAX_VERDICTS:
        return votes, words
    return [_vote(answer) for answer in answers], list(answers)


def _vote(answer: str) -> str:
    # The rule of `workflow/v2.0`: FAIL wins over SUCCESS, and other answers must be equal.
    text = " ".join(answer.upper().split())
    if "FAIL" in text:
        return "FAIL"
    return "SUCCESS" if "SUCCESS" in text else text


def offered_verdicts(prompt: str) -> frozenset[str]:
    """Return the words in capitals of a prompt, which are the verdicts that it offers."""
    return frozenset(_CAPITALS.findall(prompt))
