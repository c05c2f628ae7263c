"""Checks: evaluators that decide about an output by code, with the criteria that they are made of.

1. A check gives a verdict: `passed`, and a score of 1.0 or 0.0, so that an output that passed ranks
   above one that did not. Each rule is a criterion, and its gap says what is missing; the score, the verdict and the
   gaps of an evaluation follow from its criteria.
2. A check that could not decide is an error of kind `check_error`, neither passed nor failed. One that
   cannot decide about any output, because its command cannot run, is of kind `evaluator_broken`.
3. Checks have no side effects, so a resumed run may repeat a check that was in progress.
4. JSON Schema departs from the defaults of the library in two ways: patterns are searched with a time limit, and a
   reference that is not inside the schema is refused when the check is made, instead of being fetched.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack, cast

from .._regex import compile_pattern
from ..engine.budgets import reports
from ..engine.context import Context
from ..engine.functions import in_thread
from ..engine.run_state import acting
from ..engine.step import FunctionStep, Leaf, as_step, digest_of
from ..errors import BROKEN_EVALUATOR, ConfigurationError, EvaluationError, StepError, nearest
from ..models.reply_text import read_json
from ..records import Criterion, Evaluation, as_evaluation, codec, reaches
from ..records.codec import Json
from ..records.json_schema import Schema, library, validator_of
from ..tools.commands import CommandOptions, ShellStep
from ..tools.process import CommandResult, OnOutput, tail
from .score import finder, read_score_by_pattern

if TYPE_CHECKING:
    from jsonschema.protocols import Validator
    from referencing import Resource
    from referencing._core import Resolver

__all__ = [
    "broken",
    "check",
    "check_sentences",
    "command_check",
    "effort_check",
    "function_check",
    "grade",
    "json_schema",
    "run_check",
    "segments",
    "shares",
    "text_check",
    "verdict",
]


def check_sentences(owner: str, criteria: Sequence[str]) -> None:
    """Refuse criteria that are not sentences.

    Raises:
        ConfigurationError: For a value that is not a text, or blank.
    """
    for criterion in criteria:
        if not isinstance(criterion, str) or not criterion.strip():
            raise ConfigurationError(
                f"{owner}: {criterion!r:.80} is not a criterion. Use a sentence for each."
            )


def verdict(
    criteria: Sequence[Criterion], *, feedback: str = "", improvements: Sequence[str] | None = None
) -> Evaluation:
    """Return an evaluation: score 1.0 and passed if all criteria hold, otherwise 0.0 and not passed.

    The default of `feedback` and `improvements` is the failing criteria with their gaps.
    """
    failing = [item for item in criteria if not item.passed]
    gaps = [f"{item.name}: {item.gap}" if item.gap else item.name for item in failing]
    return Evaluation(
        0.0 if failing else 1.0,
        not failing,
        feedback or "\n".join(gaps),
        tuple(gaps if improvements is None else improvements),
        tuple(criteria),
    )


def shares(
    owner: str, criteria: Sequence[str], weights: Mapping[str, float] | None
) -> dict[str, float]:
    """Return the weight of each criterion, 1 by default, scaled to a sum of 1.

    Raises:
        ConfigurationError: For a repeated or unknown criterion, or invalid weights.
    """
    if len(set(criteria)) < len(criteria):
        raise ConfigurationError(f"{owner}: a criterion is repeated. List each once.")
    for name in weights or {}:
        if not criteria:
            raise ConfigurationError(f"{owner}: weights need criteria. List the criteria too.")
        if name not in criteria:
            raise ConfigurationError(
                f"{owner}: weights: there is no criterion {name!r}{nearest(name, criteria)}"
            )
    weights = {name: (weights or {}).get(name, 1.0) for name in criteria}
    for name, weight in weights.items():
        codec.number(f"{owner}: weights: {name}", weight, minimum=0)
    total = math.fsum(weights.values())
    if criteria and not total > 0:
        raise ConfigurationError(f"{owner}: weights: all are 0. At least one must be above 0.")
    return {name: weight / total for name, weight in weights.items()}


def grade(
    evaluations: Sequence[tuple[str, Evaluation]], weights: Mapping[str, float] | None = None
) -> Evaluation:
    """Return the evaluation of a list from those of its items.

    Each item is a criterion. The score is the share of the weights (default 1) of the items that passed,
    and `passed` means that all passed. If an item is undecided, its score is unknown, so the list is
    undecided too, and a vote names the item.

    Raises:
        EvaluationError: If an item has a score but no verdict.
    """
    criteria = []
    for name, evaluation in evaluations:
        if evaluation.passed is None and not evaluation.undecided:
            raise EvaluationError(
                f"item {name!r}: its check gave no verdict. Return True or False, or set the score from "
                "which it passes: check(function, at_least=0.8).",
                kind="no_verdict",
                retryable=False,
            )
        passed = bool(evaluation.passed) and not evaluation.undecided
        missing = "; ".join(i.gap for i in evaluation.criteria if not i.passed and i.gap)
        gap = "" if passed else evaluation.feedback or missing or "not met"
        criteria.append(Criterion(name, passed, gap))
    weight = {item.name: (weights or {}).get(item.name, 1.0) for item in criteria}
    met = math.fsum(weight[item.name] for item in criteria if item.passed)
    failing = [item for item in criteria if not item.passed]
    lines = [f"- {item.name}: {item.gap}" for item in failing]
    # An error of one check and "not met" are different facts for the next iteration.
    undecided = [name for name, evaluation in evaluations if evaluation.undecided]
    return Evaluation(
        score=None if undecided else met / math.fsum(weight.values()),
        passed=None if undecided else not failing,
        feedback="\n".join([f"{len(failing)} of {len(criteria)} items are not met:", *lines])
        if failing
        else "",
        improvements=tuple(
            f"{name}: {missing}"
            for name, evaluation in evaluations
            if evaluation.passed is not True
            for missing in (evaluation.improvements or ("not met",))
        ),
        criteria=tuple(criteria),
        votes=tuple({"item": name, "undecided": True} for name in undecided),
        undecided=bool(undecided),
        impossible=not undecided and any(evaluation.impossible for _, evaluation in evaluations),
    )


def segments(names: Iterable[str]) -> list[str]:
    """Return unique path segments: a slash becomes a dash, a repeated name gets a number."""
    result: list[str] = []
    for name in names:
        # A slash separates segments of a journal path.
        plain = name.replace("/", "-") or "part"
        number = 1
        segment = plain
        while segment in result:
            number += 1
            segment = f"{plain}-{number}"
        result.append(segment)
    return result


LISTED = 50  # errors in one feedback
MESSAGE = 300  # characters of one error
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def json_schema(schema: Schema, *, name: str = "schema") -> FunctionStep:
    """Make an evaluator that checks an output against a JSON Schema.

    A text output is first read as one strict JSON value, alone or in one code fence; any other text
    fails. All errors (the first 50) become improvements, each with its JSON path. Formats are not
    asserted, as the standard requires. See https://json-schema.org/draft/2020-12.

    Args:
        schema: The schema. The dialect is draft 2020-12 unless `$schema` names another.
        name: The name in the feedback. Default: "schema".

    Returns:
        A step from an output to an Evaluation of score 1.0 or 0.0.

    Raises:
        ConfigurationError: For an invalid schema, or a reference that is not inside it.
        EvaluationError: At run time, of kind `check_error`, if the schema cannot be evaluated, for
            example because it refers to itself without end.

    Example:
        >>> from loopwright import run_sync
        >>> print(run_sync(json_schema({"type": "array", "minItems": 2}), "[1]").output.feedback)
        schema: does not fit in 1 place:
        - $: [1] is too short
    """
    validator = _validator(schema)

    def evaluate(value: Json) -> Evaluation:
        if isinstance(value, str):
            reading = read_json(value)
            if reading.problem:
                return verdict([Criterion(name, False, reading.detail)])
            value = reading.value
        try:
            errors = []
            for error in validator.iter_errors(value):
                message = _short(error.message)
                near = library().exceptions.best_match([error])
                if near is not None and near is not error:  # the closest part of an anyOf or oneOf
                    message = f"{message} (nearest: {near.json_path}: {_short(near.message)})"
                errors.append(f"{error.json_path}: {message}")
        # A pattern's time limit has its own error.
        except EvaluationError:
            raise
        except Exception as error:  # endless recursion, a number that is too large
            raise EvaluationError(
                f"check {name}: the schema cannot be evaluated: {type(error).__name__}: {error}",
                kind="check_error",
                retryable=False,
            ) from error
        # The library's order depends on the order of keys in the schema.
        return _report(name, sorted(errors))

    async def in_background(value: Json) -> Evaluation:
        return cast("Evaluation", await in_thread(evaluate, value))

    return FunctionStep(
        in_background, name=name, fingerprint=digest_of("schema", codec.canonical(schema))
    )


def _report(name: str, errors: list[str]) -> Evaluation:
    if not errors:
        return verdict([Criterion(name, True)])
    lines = errors[:LISTED]
    if len(errors) > LISTED:
        lines.append(f"and {len(errors) - LISTED} more")
    gap = f"does not fit in {len(errors)} {'place' if len(errors) == 1 else 'places'}"
    feedback = "\n".join([f"{name}: {gap}:", *(f"- {line}" for line in lines)])
    criterion = Criterion(name, False, f"{gap}; {errors[0]}")
    return verdict([criterion], feedback=feedback, improvements=lines)


def _short(message: str) -> str:
    # The beginning names the value, the end the rule that it violates.
    half = MESSAGE // 2
    return message if len(message) <= MESSAGE else f"{message[:half]} … {message[-half:]}"


def _validator(schema: Schema) -> Validator:
    if not isinstance(schema, Mapping):
        raise ConfigurationError(
            f"check: schema: {schema!r} is not an object. Use a JSON Schema as a mapping."
        )
    dialect = schema.get("$schema")
    kind = library().Draft202012Validator
    if dialect is not None:
        # Without a default the library would silently use its newest dialect for an unknown name.
        kind = library().validators.validator_for(schema, default=None)
    if kind is None:
        raise ConfigurationError(
            f"check: schema: $schema: {dialect!r} is not a known dialect. Use for example "
            "'https://json-schema.org/draft/2020-12/schema'."
        )
    try:
        kind.check_schema(schema)
    except library().SchemaError as error:
        raise ConfigurationError(
            f"check: schema: {error.json_path}: {_short(error.message)}"
        ) from None
    _check_parts(schema, kind)
    return validator_of(schema)


def _check_parts(schema: Schema, kind: Any) -> None:
    """Raise an error for a pattern or a reference that would fail only when a value reaches it."""
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import EMPTY_REGISTRY, specification_with

    root = specification_with(kind.META_SCHEMA["$schema"]).create_resource(schema)
    keys: set[str] = set()
    for part, resolver in _parts(root, EMPTY_REGISTRY.resolver_with_root(root)):
        keys.update(part)
        for text in (part.get("pattern"), *part.get("patternProperties", ())):
            if isinstance(text, str):
                # An invalid pattern is reported when the check is made, not in the first iteration.
                compile_pattern(text)
        for reference in (part[key] for key in _REFERENCES if key in part):
            try:
                resolver.lookup(reference)
            except Unresolvable:
                raise ConfigurationError(
                    f"check: schema: {reference!r} is not in the schema, and remote schemas are not "
                    "fetched. Put it under $defs."
                ) from None
    # The library searches these patterns with `re`, past the search with a time limit.
    if {"patternProperties", "unevaluatedProperties"} <= keys:
        raise ConfigurationError(
            "check: schema: patternProperties together with unevaluatedProperties has no time limit. "
            "Use additionalProperties."
        )


def _parts(
    resource: Resource[Json], resolver: Resolver[Json]
) -> Iterator[tuple[Schema, Resolver[Json]]]:
    if isinstance(resource.contents, Mapping):
        yield resource.contents, resolver
    for inner in resource.subresources():
        yield from _parts(inner, resolver.in_subresource(inner))


# POSIX exit codes of a shell for "not executable" and "not found". A missing program is not a verdict.
CANNOT_RUN = (126, 127)
Rule = Callable[[str], str]  # returns what is missing in a text, or ""


def check(
    function: Callable[..., object] | None = None, /, **options: Any
) -> FunctionStep[object, Evaluation]:
    """Make an evaluator of a function, a command, a JSON Schema or rules for the text.

    Args:
        function: A function of the output, or of the output and the context. It returns True or False,
            a score from 0 to 1, a Criterion or a list of them, or an Evaluation.
        **options: With a function `at_least`, the score from which it passes. Instead of a function:
            `command`, a list of words or a script (see `command_check`); `schema`, a JSON Schema (see
            `json_schema`); or rules for the text, all of which must hold: `max_words`, `min_words`,
            `max_chars`, `min_chars`, `contains`, `matches`, `not_matches`, `ignore_case` (see
            `text_check`). Of an evaluation on cases: `max_seconds` and `max_usd`, what the task may take. `name` appears in the feedback.

    Returns:
        A step from an output to an Evaluation of score 1.0 or 0.0.

    Raises:
        ConfigurationError: For an unknown option, or a check without rules.

    Example:
        >>> from loopwright import run_sync
        >>> result = run_sync(check(max_words=3, contains="done"), "one two three four").output
        >>> print(result.score, result.passed, result.feedback, sep="\\n")
        0.0
        False
        max_words 3: has 4 words, 1 more than allowed
        contains 'done': 'done' is not in it
    """
    if function is not None:
        return _make(function_check, {"function": function, **options})
    for kind, make in (
        ("command", command_check), ("schema", json_schema), ("max_seconds", effort_check), ("max_usd", effort_check),
    ):  # fmt: skip
        if kind in options:
            return _make(make, options)
    return _make(text_check, options)


@functools.cache
def _options(make: Callable[..., FunctionStep]) -> tuple[str, ...]:
    parameters = inspect.signature(make).parameters.values()
    named = [one.name for one in parameters if one.kind is not one.VAR_KEYWORD]
    shared = CommandOptions.__annotations__ if len(named) < len(parameters) else ()
    return (*named, *shared)


def _make(make: Callable[..., FunctionStep], options: Mapping[str, Any]) -> FunctionStep:
    valid = _options(make)
    for name in options:
        if name not in valid:
            # All valid options, if none is similar to the unknown one.
            hint = nearest(name, valid) or f"; it takes {', '.join(valid)}"
            raise ConfigurationError(f"check: unknown option {name!r}{hint}")
    return make(**options)


def function_check(
    function: Callable[..., object], *, name: str = "", at_least: float | None = None
) -> FunctionStep:
    """Make an evaluator of a function of the output, or of the output and the context.

    A plain function runs in a thread. Use `step(function, inline=True)` for one that returns at once.

    Args:
        function: The function, or a step that is not made of other steps. It returns True or False, a
            Criterion or a list of them, an Evaluation, or a score from 0 to 1.
        name: The name in the feedback. Default: the function's name.
        at_least: The score from which it passes. Default: a score gives no verdict.

    Raises:
        ConfigurationError: For a step that is made of other steps.
        EvaluationError: At run time, of kind `check_error`, if the function raises or returns None.
    """
    inner = as_step(function, name=name, purpose="evaluate")
    if not isinstance(inner, Leaf):
        raise ConfigurationError(
            f"check: {inner.name} consists of several steps. If it is an evaluator, use it directly."
        )
    name = name or inner.name
    if at_least is not None:
        codec.number(f"check {name}: at_least", at_least, minimum=0, maximum=1)

    async def evaluate(value: Json, ctx: Context) -> Evaluation:
        try:
            result = await acting(ctx.run.stubs, inner, ctx.path)(value, ctx)
        except StepError:
            raise
        except Exception as error:  # the function of a user may raise anything
            raise _undecided(f"{name} raised {type(error).__name__}: {error}") from error
        return _evaluation_of(name, result, at_least)

    return FunctionStep(
        evaluate,
        name=name,
        reserve=inner.reserve,
        idempotent=inner.idempotent,
        fingerprint=digest_of("check", name, inner.fingerprint, repr(at_least)),
        reports=reports(inner),
        reader=inner,
    )


def _evaluation_of(name: str, result: object, at_least: float | None) -> Evaluation:
    if result is None:
        raise _undecided(f"{name} returned None. Return True or False, a score or an Evaluation.")
    # Before numbers: bool is a subclass of int, and True is a verdict, not the score 1.
    if isinstance(result, bool):
        return verdict([Criterion(name, result, "" if result else "it does not hold")])
    if isinstance(result, Criterion):
        return verdict([result])
    if isinstance(result, Sequence) and result and all(isinstance(r, Criterion) for r in result):
        return verdict(result)
    evaluation = as_evaluation(result)
    # A verdict of the function wins over `at_least`.
    if at_least is None or evaluation.passed is not None or evaluation.score is None:
        return evaluation
    passed = reaches(evaluation.score, at_least)
    gap = "" if passed else f"scores {evaluation.score:g}, below {at_least:g}"
    return replace(
        evaluation,
        passed=passed,
        feedback=evaluation.feedback or (gap and f"{name}: {gap}"),
        criteria=(*evaluation.criteria, Criterion(name, passed, gap)),
        undecided=False,
    )


def _undecided(message: str) -> EvaluationError:
    return EvaluationError(f"check {message}", kind="check_error")


def command_check(
    command: Sequence[str] | str,
    *,
    name: str = "",
    score: str = "",
    **options: Unpack[CommandOptions],
) -> FunctionStep:
    """Make an evaluator of a command: exit code 0 passes, the tail of its output is the feedback.

    Args:
        command: A list of words, or the text of a script for `/bin/sh -e`. It is constant.
        name: The name in the feedback. Default: that of the program.
        score: A regular expression for a score in the output, such as `coverage: ([0-9]+)%`, also of a command
            that fails. The last match counts. Default: 1.0 if it passes, else 0.0.
        **options: `args`, `env`, `stdin` (default: the output to check), `cwd` and `timeout` (seconds),
            as in `shell`.

    Raises:
        EvaluationError: At run time, of kind `evaluator_broken` if the command cannot run (exit codes
            126 and 127 included), of kind `check_error` at its timeout or for endless output.
    """
    shell = ShellStep(command, name=name, **options)
    find = finder(score) if score else None

    async def evaluate(value: Json, ctx: Context) -> Evaluation:
        result = await run_check(shell, value, ctx)
        evaluation = judged(result)
        if find is None:
            return evaluation
        text = f"{result.stderr}\n{result.stdout}"
        reading = await in_thread(lambda: read_score_by_pattern(text, find(text), (0.0, 1.0)))
        if reading.score is None:
            # Without a number the order is unknown, and the verdict alone counts.
            feedback = f"{shell.name}: no score: {reading.detail}\n{evaluation.feedback}"
            return replace(evaluation, feedback=feedback)
        return replace(evaluation, score=reading.score)

    def judged(result: CommandResult) -> Evaluation:
        printed = output_of(result)
        if result.exit_code == 0:
            return verdict([Criterion(shell.name, True)], feedback=printed)
        # Most tools print the summary of an error last.
        last = printed.rpartition("\n")[2]
        gap = f"{result.ending}: {last}" if last else result.ending
        feedback = "\n".join(text for text in (f"{shell.name} {result.ending}", printed) if text)
        return verdict([Criterion(shell.name, False, gap)], feedback=feedback)

    return FunctionStep(
        evaluate,
        name=shell.name,
        fingerprint=digest_of("check", shell.fingerprint, *([score] if score else [])),
        reports=False,
    )


def effort_check(
    *, name: str = "", max_seconds: float | None = None, max_usd: float | None = None
) -> FunctionStep:
    """Make an evaluator of the time and the cost of a task on a case.

    Args:
        name: The name in the feedback. Default: that of the first limit.
        max_seconds: The most seconds that the task may take.
        max_usd: The most US dollars that it may cost.

    Raises:
        ConfigurationError: For a limit below 0.
        EvaluationError: At run time, of kind `check_error`, outside of an evaluation on cases, or without a price.
    """
    given = {"max_seconds": max_seconds, "max_usd": max_usd}
    limits = {
        key: codec.number(f"check: {key}", limit, minimum=0)
        for key, limit in given.items()
        if limit is not None
    }

    async def evaluate(_: Json, ctx: Context) -> Evaluation:
        effort = None if ctx.scope is None else ctx.scope.effort
        if effort is None:
            raise _undecided("max_seconds and max_usd are for the task of an evaluation on cases")
        took, criteria = effort(), []
        for key, limit in limits.items():
            unit = key.removeprefix("max_")
            value = took[unit == "usd"]
            if value is None:
                raise _undecided(
                    "max_usd: a model of the task has no price; declare it in `prices`"
                )
            gap = "" if value <= limit else f"it took {value:.3g} {unit}"
            criteria.append(Criterion(f"{key} {limit:g}", not gap, gap))
        return verdict(criteria)

    return FunctionStep(
        evaluate,
        name=name or next(iter(limits), "effort"),
        fingerprint=digest_of("check", repr(sorted(limits.items()))),
    )


async def run_check(
    shell: ShellStep, value: Json, ctx: Context, watch: OnOutput | None = None
) -> CommandResult:
    """Run the command of a check. A failure that prevents a verdict is an error."""
    try:
        result = await shell.run_command(value, ctx, watch)
    except StepError as error:
        if error.kind == "cannot_start":
            raise broken(f"{shell.name}: {error}") from error
        raise _undecided(f"{shell.name}: {error}") from error
    if result.exit_code in CANNOT_RUN:
        why = tail(result.stderr) or "its shell could not run it"
        raise broken(f"{shell.name} {result.ending}, so nothing was checked: {why}")
    return result


def broken(message: str) -> EvaluationError:
    """Return the error of a check that cannot decide about any output."""
    return EvaluationError(f"check {message}", kind=BROKEN_EVALUATOR, retryable=False)


def output_of(result: CommandResult) -> str:
    """Return the tails of standard output and standard error."""
    return "\n".join(text for text in (tail(result.stdout), tail(result.stderr)) if text)


def text_check(
    *,
    name: str = "",
    max_words: int | None = None,
    min_words: int | None = None,
    max_chars: int | None = None,
    min_chars: int | None = None,
    contains: str | Sequence[str] = (),
    matches: str | Sequence[str] = (),
    not_matches: str | Sequence[str] = (),
    ignore_case: bool = False,
) -> FunctionStep:
    """Make an evaluator of rules for the text of an output, or for its JSON if it is not text.

    Args:
        name: The name of the step. Default: that of the only rule, or "text".
        max_words: The maximum number of words, which are separated by white space.
        min_words: The minimum number of words.
        max_chars: The maximum number of characters, counted as code points.
        min_chars: The minimum number of characters.
        contains: A text, or several, that the output must contain.
        matches: A regular expression, or several, that must match anywhere. Anchor with ^ and $.
        not_matches: A regular expression, or several, that must not match.
        ignore_case: Whether `contains` and the expressions ignore case. Default: false.

    Raises:
        ConfigurationError: For an invalid rule, or without a rule.
        PatternTimeout: At run time, if an expression takes too long. Nothing is decided then.
    """
    limits = {"max_words": max_words, "min_words": min_words}
    limits |= {"max_chars": max_chars, "min_chars": min_chars}
    rules: dict[str, Rule] = {
        **{f"{k} {limit}": _limit(k, limit) for k, limit in limits.items() if limit is not None},
        **{f"contains {t!r}": _contains(t, ignore_case) for t in _texts("contains", contains)},
        **_searches("matches", matches, ignore_case),
        **_searches("not_matches", not_matches, ignore_case),
    }
    if not rules:
        raise ConfigurationError(
            "check: no rule. Use a function, command, schema, matches, contains or a limit such as "
            "max_words."
        )
    # A regular expression may be slow, so it runs in a thread. The other rules are too fast for one.
    slow = bool(matches or not_matches)

    def evaluate(text: str) -> Evaluation:
        gaps = {label: rule(text) for label, rule in rules.items()}
        return verdict([Criterion(label, not gap, gap) for label, gap in gaps.items()])

    async def checked(value: Json) -> Evaluation:
        text = codec.text_of(value)
        return await in_thread(evaluate, text) if slow else evaluate(text)

    # The default name is part of recorded journal paths.
    name = name or (next(iter(rules)).partition(" ")[0] if len(rules) == 1 else "text")
    return FunctionStep(
        checked, name=name, fingerprint=digest_of("check", *rules, repr(ignore_case))
    )


def _limit(keyword: str, limit: int) -> Rule:
    codec.integer(f"check: {keyword}", limit, minimum=0)
    side, unit = keyword.split("_")

    def rule(text: str) -> str:
        over = (len(text.split()) if unit == "words" else len(text)) - limit
        if side == "max" and over > 0:
            return f"has {limit + over} {unit}, {over} more than allowed"
        if side == "min" and over < 0:
            return f"has {limit + over} {unit}, {-over} fewer than asked for"
        return ""

    return rule


def _contains(part: str, ignore_case: bool) -> Rule:
    def rule(text: str) -> str:
        there = part.casefold() in text.casefold() if ignore_case else part in text
        return "" if there else f"{part!r} is not in it"

    return rule


def _searches(keyword: str, patterns: str | Sequence[str], ignore_case: bool) -> dict[str, Rule]:
    return {
        f"{keyword} {pattern!r}": _search(pattern, ignore_case, required=keyword == "matches")
        for pattern in _texts(keyword, patterns)
    }


def _search(pattern: str, ignore_case: bool, *, required: bool) -> Rule:
    compiled = compile_pattern(pattern, ignore_case=ignore_case)

    def rule(text: str) -> str:
        match = compiled.search(text)
        if required:
            return "" if match else "nothing in it matches"
        return f"{match.text[:60]!r} in it matches" if match else ""

    return rule


def _texts(keyword: str, value: str | Sequence[str]) -> list[str]:
    texts = [value] if isinstance(value, str) else list(value)
    for text in texts:
        if not isinstance(text, str) or not text:
            raise ConfigurationError(
                f"check: {keyword}: {text!r} is not a text. Use a text, or a list of texts."
            )
    return texts
