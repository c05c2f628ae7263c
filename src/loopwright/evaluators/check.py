"""Checks: what code can decide about an output, as evaluators.

Rules:

1. A check answers with a verdict: `passed`, and a score of 1.0 or 0.0, so that an output that
   passed outranks one that did not. Each rule is a criterion, and what is missing is its gap.
2. A check that could not look is an error of kind `check_error`: neither passed nor "not passed". One
   that cannot look at any output, as its command cannot run, is of kind `evaluator_broken`.
3. Checks look and do not act, so a resumed run may repeat the one that was in flight.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .._regex import compile_pattern
from ..engine.budget import reports
from ..engine.context import Context
from ..engine.step import FunctionStep, as_step, digest_of
from ..engine.threads import in_thread
from ..errors import (
    BROKEN_EVALUATOR,
    ConfigurationError,
    EvaluationError,
    StepError,
    nearest,
)
from ..records import Criterion, Evaluation, as_evaluation, codec, reaches
from ..records.codec import Json
from ..tools.process import CommandResult, tail
from ..tools.shell import ShellStep, Value
from .criteria import verdict
from .json_schema import schema_check

__all__ = ["broken", "check", "command_check", "function_check", "look", "text_check"]

CANNOT_RUN = (126, 127)  # a shell's codes for "not executable" and "not found"
Rule = Callable[[str], str]  # what is missing in a text, or nothing


def check(thing: Callable[..., Any] | None = None, /, **what: Any) -> FunctionStep:
    """Make an evaluator of a function, a command, a JSON Schema or rules for the text.

    Shapes: `check(function)`; `check(command=["pytest", "-q"])`; `check(schema={...})`; or any of
    `max_words`, `min_words`, `max_chars`, `min_chars`, `contains`, `matches`, `not_matches`, each
    of which is a criterion and all of which must hold. `name` is used in feedback. More options:
    see `function_check`, `command_check`, `schema_check` and `text_check`.

    Raises:
        ConfigurationError: for an option that is unknown, or a check that could mean nothing.

    >>> from loopwright import run_sync
    >>> found = run_sync(check(max_words=3, contains="done"), "one two three four").output
    >>> print(found.score, found.passed, found.feedback, sep="\\n")
    0.0
    False
    max_words 3: has 4 words, 1 more than allowed
    contains 'done': 'done' is not in it
    """
    if thing is not None:
        return _made(function_check, {"function": thing, **what})
    for kind, make in (("command", command_check), ("schema", schema_check)):
        if kind in what:
            return _made(make, what)
    return _made(text_check, what)


@functools.cache
def _options(make: Callable[..., FunctionStep]) -> tuple[str, ...]:
    return tuple(inspect.signature(make).parameters)


def _made(make: Callable[..., FunctionStep], given: Mapping[str, Any]) -> FunctionStep:
    known = _options(make)
    for name in given:
        if name not in known:
            hint = nearest(name, known) or f"; it takes {', '.join(known)}"
            raise ConfigurationError(f"check: unknown option {name!r}{hint}")
    return make(**given)


def function_check(
    function: Callable[..., Any], *, name: str = "", at_least: float | None = None
) -> FunctionStep:
    """Make an evaluator of a function of the output, or of the output and the context.

    It (or any step that is no composite) returns True or False, a Criterion or a list of them, an
    Evaluation, or a score from 0 to 1, which passes if it is `at_least` so much and is no verdict
    without that. A plain function runs in a thread; give `step(function, inline=True)` for one that
    returns at once.

    Raises:
        EvaluationError: of kind `check_error`, when the function raises or returns nothing.
    """
    inner = as_step(function, name=name)
    if not isinstance(inner, FunctionStep):
        raise ConfigurationError(
            f"check: {inner.name} is made of steps; if it judges, it is an evaluator as it is"
        )
    name = name or inner.name
    if at_least is not None:
        codec.number(f"check {name}: at_least", at_least, least=0, most=1)

    async def judged(value: Json, ctx: Context) -> Evaluation:
        try:
            found = await inner.act(value, ctx)
        except StepError:
            raise
        except Exception as error:  # what a user's function raises is theirs to choose
            raise _unable(f"{name} raised {type(error).__name__}: {error}") from error
        return _read(name, found, at_least)

    return FunctionStep(
        judged,
        name=name,
        reserve=inner.reserve,
        idempotent=inner.idempotent,
        fingerprint=digest_of("check", name, inner.fingerprint, repr(at_least)),
        reports=reports(inner),
    )


def _read(name: str, found: Any, at_least: float | None) -> Evaluation:
    if found is None:
        raise _unable(f"{name} returned nothing; return True or False, a score or an Evaluation")
    if isinstance(found, bool):
        return verdict([Criterion(name, found, "" if found else "it does not hold")])
    if isinstance(found, Criterion):
        return verdict([found])
    if isinstance(found, Sequence) and found and all(isinstance(f, Criterion) for f in found):
        return verdict(found)
    evaluation = as_evaluation(found)
    if at_least is None or evaluation.passed is not None or evaluation.score is None:
        return evaluation
    passed = reaches(evaluation.score, at_least)
    gap = "" if passed else f"scores {evaluation.score:g}, below {at_least:g}"
    return Evaluation(
        score=evaluation.score,
        passed=passed,
        feedback=evaluation.feedback or (gap and f"{name}: {gap}"),
        improvements=evaluation.improvements,
        criteria=(*evaluation.criteria, Criterion(name, passed, gap)),
        votes=evaluation.votes,
        details=evaluation.details,
    )


def _unable(message: str) -> EvaluationError:
    return EvaluationError(f"check {message}", kind="check_error")


def command_check(
    command: Sequence[str] | str,
    *,
    name: str = "",
    args: Sequence[Value] = (),
    env: Mapping[str, Value] | None = None,
    stdin: Value = None,
    cwd: str | Path | None = None,
    timeout: float | None = None,
) -> FunctionStep:
    """Make an evaluator of a command: exit code 0 passes, and the tail of its output is the
    feedback.

    The output to check is its stdin, unless `stdin` says otherwise; the options are those of
    `shell`.

    Raises:
        EvaluationError: of kind `evaluator_broken`, when it cannot be run (exit codes 126 and 127
            too); of kind `check_error`, when it takes longer than `timeout` seconds or prints without
            end.
    """
    shell = ShellStep(command, name=name, args=args, env=env, stdin=stdin, cwd=cwd, timeout=timeout)

    async def judged(value: Json, ctx: Context) -> Evaluation:
        result = await look(shell, value, ctx)
        passed = result.exit_code == 0
        said = output_of(result)
        if passed:
            return verdict([Criterion(shell.name, True)], feedback=said)
        last = said.rpartition("\n")[2]
        gap = f"{result.ending}: {last}" if last else result.ending
        feedback = "\n".join(text for text in (f"{shell.name} {result.ending}", said) if text)
        return verdict([Criterion(shell.name, False, gap)], feedback=feedback)

    return FunctionStep(
        judged, name=shell.name, fingerprint=digest_of("check", shell.fingerprint), reports=False
    )


async def look(shell: ShellStep, value: Json, ctx: Context) -> CommandResult:
    """Run the command of a check; what keeps it from a verdict is an error."""
    try:
        result = await shell.look(value, ctx)
    except StepError as error:
        if error.kind == "cannot_start":
            raise broken(f"{shell.name}: {error}") from error
        raise _unable(f"{shell.name}: {error}") from error
    if result.exit_code in CANNOT_RUN:
        why = tail(result.stderr) or "its shell could not run it"
        raise broken(f"{shell.name} {result.ending}, so nothing was checked: {why}")
    return result


def broken(message: str) -> EvaluationError:
    """Return the error of a check that can look at no output, whatever that is."""
    return EvaluationError(f"check {message}", kind=BROKEN_EVALUATOR, retryable=False)


def output_of(result: CommandResult) -> str:
    """Return the tails of what a command printed, on stdout first."""
    return "\n".join(said for said in (tail(result.stdout), tail(result.stderr)) if said)


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
    """Make an evaluator of rules for the text of an output; what is no text is taken as its JSON.

    Words are what stands between blanks, characters are code points. `contains` and the regular
    expressions (found anywhere: use ^ and $) take one text or several; `ignore_case` holds for
    both.

    Raises:
        PatternTimeout: when it runs, if a pattern took too long: nothing was decided.
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
            "check: there is nothing to check; give a function, command, schema, matches, contains "
            "or a limit such as max_words"
        )
    slow = bool(matches or not_matches)  # a search may take a while, and must not hold the loop

    def judged(text: str) -> Evaluation:
        gaps = {label: rule(text) for label, rule in rules.items()}
        return verdict([Criterion(label, not gap, gap) for label, gap in gaps.items()])

    async def checked(value: Json) -> Evaluation:
        text = codec.text_of(value)
        return await in_thread(judged, text) if slow else judged(text)

    name = name or (next(iter(rules)).partition(" ")[0] if len(rules) == 1 else "text")
    return FunctionStep(
        checked, name=name, fingerprint=digest_of("check", *rules, repr(ignore_case))
    )


def _limit(keyword: str, most: int) -> Rule:
    codec.whole(f"check: {keyword}", most, least=0)
    side, unit = keyword.split("_")

    def rule(text: str) -> str:
        over = (len(text.split()) if unit == "words" else len(text)) - most
        if side == "max" and over > 0:
            return f"has {most + over} {unit}, {over} more than allowed"
        if side == "min" and over < 0:
            return f"has {most + over} {unit}, {-over} fewer than asked for"
        return ""

    return rule


def _contains(part: str, ignore_case: bool) -> Rule:
    def rule(text: str) -> str:
        there = part.casefold() in text.casefold() if ignore_case else part in text
        return "" if there else f"{part!r} is not in it"

    return rule


def _searches(keyword: str, patterns: str | Sequence[str], ignore_case: bool) -> dict[str, Rule]:
    return {
        f"{keyword} {pattern!r}": _search(pattern, ignore_case, wanted=keyword == "matches")
        for pattern in _texts(keyword, patterns)
    }


def _search(pattern: str, ignore_case: bool, *, wanted: bool) -> Rule:
    compiled = compile_pattern(pattern, ignore_case=ignore_case)

    def rule(text: str) -> str:
        found = compiled.search(text)
        if wanted:
            return "" if found else "nothing in it matches"
        return f"{found.text[:60]!r} in it matches" if found else ""

    return rule


def _texts(keyword: str, given: str | Sequence[str]) -> list[str]:
    texts = [given] if isinstance(given, str) else list(given)
    for text in texts:
        if not isinstance(text, str) or not text:
            raise ConfigurationError(
                f"check: {keyword}: {text!r} is not a text; give one, or a list of them"
            )
    return texts
