"""Checks, checklists, scores, tests and gates: a verdict is what was found, and an error is not."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopwright import (
    Criterion,
    Evaluation,
    Iteration,
    Loop,
    MaxIterations,
    MemoryJournal,
    Passed,
    ScoreAtLeast,
    run,
    run_sync,
    step,
)
from loopwright.errors import ConfigurationError, StepError
from loopwright.evaluators.check import check
from loopwright.evaluators.checklist import checklist
from loopwright.evaluators.criteria import grade, segments, verdict
from loopwright.evaluators.gates import gates
from loopwright.evaluators.passing import share_passing
from loopwright.evaluators.score import score


@step(inline=True)
def same(value: Any) -> Any:
    """Return the value."""
    return value


def judged(evaluator: Any, output: Any) -> Iteration:
    """Return the record of one round whose output is judged."""
    return run_sync(Loop(same, evaluator, until=MaxIterations(1)), output).history[0]


def found(evaluator: Any, output: Any) -> Evaluation:
    """Return what an evaluator finds in an output."""
    evaluation = judged(evaluator, output).evaluation
    assert evaluation is not None, judged(evaluator, output).error
    return evaluation


def error(evaluator: Any, output: Any = "x") -> tuple[str, str]:
    """Return the kind and the message of an evaluator's failure."""
    failure = judged(evaluator, output).error
    assert failure is not None
    assert failure.stage == "evaluate"
    return failure.kind, failure.message


def gaps(evaluation: Evaluation) -> list[str]:
    """Return the gaps of the criteria that fail."""
    return [item.gap for item in evaluation.criteria if not item.passed]


# Rules for the text.


@pytest.mark.parametrize(
    ("rule", "output", "gap"),
    [
        ({"max_words": 2}, "a b", ""),
        ({"max_words": 2}, " a\tb\nc ", "has 3 words, 1 more than allowed"),
        ({"min_words": 3}, "a b", "has 2 words, 1 fewer than asked for"),
        ({"min_words": 0}, "", ""),
        ({"max_chars": 3}, "aé🙂", ""),
        ({"max_chars": 3}, "abcde", "has 5 chars, 2 more than allowed"),
        ({"min_chars": 2}, "a", "has 1 chars, 1 fewer than asked for"),
        ({"contains": "b"}, "abc", ""),
        ({"contains": "B"}, "abc", "'B' is not in it"),
        ({"contains": "B", "ignore_case": True}, "abc", ""),
        ({"matches": "^b"}, "abc", "nothing in it matches"),
        ({"matches": "^A", "ignore_case": True}, "abc", ""),
        ({"not_matches": r"\d+"}, "abc", ""),
        ({"not_matches": r"\d+"}, "ab12c", "'12' in it matches"),
        ({"contains": '"a": 1'}, {"a": 1}, ""),
        ({"max_chars": 0}, None, ""),
    ],
)
def test_a_rule_says_what_is_missing(rule: dict[str, Any], output: Any, gap: str) -> None:
    """A rule holds or names its gap; the score is 1 or 0, and the feedback names the rule."""
    evaluation = found(check(**rule), output)
    keyword, value = next(iter(rule.items()))
    name = f"{keyword} {value!r}"
    assert evaluation.criteria == (Criterion(name, not gap, gap),)
    assert (evaluation.passed, evaluation.score) == (not gap, 0.0 if gap else 1.0)
    assert evaluation.feedback == (f"{name}: {gap}" if gap else "")
    assert evaluation.improvements == ((f"{name}: {gap}",) if gap else ())


def test_all_rules_are_criteria_and_all_must_hold() -> None:
    """Several rules are looked at together, and each that fails is named."""
    evaluation = found(check(min_words=3, contains=["a", "z"], max_words=9), "a b")
    assert [(item.name, item.passed) for item in evaluation.criteria] == [
        ("max_words 9", True),
        ("min_words 3", False),
        ("contains 'a'", True),
        ("contains 'z'", False),
    ]
    assert (evaluation.passed, evaluation.score) == (False, 0.0)
    assert len(evaluation.improvements) == 2


@settings(max_examples=30)
@given(st.text(max_size=60), st.integers(0, 12))
def test_counting_words_agrees_with_itself(text: str, limit: int) -> None:
    """At most n and at least n both hold exactly at n."""
    words = len(text.split())
    most = check(max_words=limit)
    least = check(min_words=limit)
    both = [asyncio.run(rule.act(text, None)).passed for rule in (most, least)]
    assert both == [words <= limit, words >= limit]


@pytest.mark.parametrize("evaluator", [check(matches="(a+)+$"), score(pattern="(a+)+$")])
def test_a_pattern_that_takes_too_long_decides_nothing(evaluator: Any) -> None:
    """A hostile pattern is an error of the check, neither passed nor not passed."""
    assert error(evaluator, "a" * 5000 + "b")[0] == "pattern_timeout"


# Functions.


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (True, Evaluation(1.0, True, criteria=(Criterion("f", True),))),
        (
            False,
            Evaluation(
                0.0,
                False,
                "f: it does not hold",
                ("f: it does not hold",),
                (Criterion("f", False, "it does not hold"),),
            ),
        ),
        (Criterion("tone", True), Evaluation(1.0, True, criteria=(Criterion("tone", True),))),
        (0.4, Evaluation(0.4)),
        (Evaluation(0.4, None, "so so"), Evaluation(0.4, None, "so so")),
        ({"confidence": 0.5, "passed": True}, Evaluation(0.5, True)),
    ],
)
def test_a_function_may_answer_in_many_ways(answer: Any, expected: Evaluation) -> None:
    """True, False, a Criterion, a score, an Evaluation or an object are read as one."""
    assert found(check(lambda value: answer, name="f"), "x") == expected


def test_a_function_may_give_a_list_of_criteria() -> None:
    """Each is kept, and all must hold."""
    parts = [Criterion("a", True), Criterion("b", False, "no b")]
    evaluation = found(check(lambda value: parts), "x")
    assert (evaluation.criteria, evaluation.feedback) == (tuple(parts), "b: no b")


@pytest.mark.parametrize(("value", "passed"), [(0.79, False), (0.8, True), (1, True)])
def test_a_score_passes_from_where_it_was_said(value: float, passed: bool) -> None:
    """With at_least a score has a verdict, and says by how much it fell short."""
    evaluation = found(check(lambda _: value, name="f", at_least=0.8), "x")
    assert (evaluation.score, evaluation.passed) == (value, passed)
    assert evaluation.feedback == ("" if passed else "f: scores 0.79, below 0.8")


def test_a_verdict_of_its_own_outranks_at_least() -> None:
    """An evaluation that has a verdict keeps it."""
    evaluation = Evaluation(0.2, True)
    assert found(check(lambda _: evaluation, at_least=0.9), "x") == evaluation


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda value: None,
            "check f returned nothing; return True or False, a score or an Evaluation",
        ),
        (lambda value: 1 / 0, "check f raised ZeroDivisionError: division by zero"),
        (lambda value: value["a"], "check f raised TypeError: string indices must be integers"),
    ],
)
def test_a_function_that_breaks_is_a_check_error(function: Any, message: str) -> None:
    """An error of the check is not "not passed"."""
    kind, said = error(check(function, name="f"))
    assert (kind, said[: len(message)]) == ("check_error", message)


def test_an_error_that_names_its_kind_keeps_it() -> None:
    """A StepError of the function is passed on as it is."""

    def quota(value: Any) -> bool:
        raise StepError("the account is empty", kind="quota", retryable=False)

    assert error(check(quota)) == ("quota", "the account is empty")


def test_a_function_may_ask_its_context_and_be_async() -> None:
    """The forms of a step are those of a check."""

    async def later(value: Any, ctx: Any) -> bool:
        return bool(ctx.path == "same/1/evaluate" and value == "x")

    assert found(check(later), "x").passed


# Commands.


def test_a_command_passes_with_exit_code_0() -> None:
    """What it printed is the feedback, and the output is its stdin."""
    assert found(check(command=["grep", "-c", "a"]), "a\nb\na") == Evaluation(
        1.0, True, "2", criteria=(Criterion("grep", True),)
    )


def test_a_command_that_fails_is_no_error() -> None:
    """Any other exit code does not pass; the tail of both streams is the feedback."""
    evaluation = found(check(command="echo out; echo err >&2; exit 3", name="lint"), "x")
    assert (evaluation.passed, evaluation.score) == (False, 0.0)
    assert evaluation.feedback == "lint exited with 3\nout\nerr"
    assert evaluation.improvements == ("lint: exited with 3: err",)
    assert gaps(found(check(command="kill -SEGV $$"), "x")) == ["was ended by SIGSEGV"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"command": ["no-such-program"]},
            ("check no-such-program: cannot start 'no-such-program': there is no such program on "
            "PATH; install it, or give its whole path"),
        ),
        (
            {"command": "exit 126", "name": "c"},
            "check c exited with 126, so nothing was checked: its shell could not run it",
        ),
        (
            {"command": "echo gone >&2; exit 127", "name": "c"},
            "check c exited with 127, so nothing was checked: gone",
        ),
        (
            {"command": "sleep 60", "name": "c", "timeout": 0.1},
            "check c: c took longer than its 0.1 s and was ended",
        ),
        (
            {"command": ["true"], "env": {"A": "\0"}},
            "check true: env: A: has a NUL character, which would end it; remove it, or use stdin",
        ),
    ],
)  # fmt: skip
def test_a_command_that_cannot_look_is_a_check_error(options: dict[str, Any], message: str) -> None:
    """Not found, not executable, too slow: nothing was checked, and that is another fact."""
    assert error(check(**options)) == ("check_error", message)


def test_a_loop_goes_on_after_a_check_error_if_it_may() -> None:
    """Under continue the error is a record without a verdict, and not a failed check."""
    tries: list[int] = []

    def answer(value: Any) -> bool:
        tries.append(1)
        if len(tries) == 1:
            raise OSError("disk")
        return True

    result = run_sync(Loop(same, check(answer), until=Passed(), on_failure="continue"), "x")
    first, second = result.history
    assert result.satisfied
    assert (first.evaluation, first.error and first.error.kind) == (None, "check_error")
    assert second.passed


# JSON Schema.

SHAPE = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z]+$"},
        "tags": {"$ref": "#/$defs/t"},
    },
    "patternProperties": {"^x_": {"type": "integer"}},
    "additionalProperties": False,
    "$defs": {"t": {"type": "array", "items": {"type": "string"}}},
}


@pytest.mark.parametrize("output", [{"name": "a", "tags": ["b"], "x_1": 1}, '{"name": "a"}',
                                    '```json\n{"name": "a"}\n```'])  # fmt: skip
def test_what_fits_a_schema_passes(output: Any) -> None:
    """A value is checked as it is, a text as strict JSON, alone or in a fence."""
    assert found(check(schema=SHAPE), output) == Evaluation(
        1.0, True, criteria=(Criterion("schema", True),)
    )


def test_every_error_is_listed_with_its_path() -> None:
    """All of what does not fit is an improvement, by its JSON path, in order."""
    evaluation = found(check(schema=SHAPE), {"name": "A", "tags": ["b", 1], "x_1": "1", "y": 0})
    assert evaluation.improvements == (
        "$.name: 'A' does not match '^[a-z]+$'",
        "$.tags[1]: 1 is not of type 'string'",
        "$.x_1: '1' is not of type 'integer'",
        "$: 'y' is not among the properties that are allowed",
    )
    assert evaluation.feedback == "\n".join(
        ["schema: does not fit in 4 places:", *(f"- {line}" for line in evaluation.improvements)]
    )


@pytest.mark.parametrize(
    ("output", "gap"),
    [
        ("", "the reply is empty; expected one JSON value"),
        ("Sure! {}", ("the reply is not JSON at line 1 column 1; expected one JSON value and "
         "nothing else")),
        ('{"name": NaN}', "the reply holds NaN; expected finite numbers only"),
        ('{"name": "a", "name": "b"}', ("the reply repeats a key of an object; expected each key "
         "once")),
    ],
)  # fmt: skip
def test_a_text_that_is_no_json_does_not_pass(output: str, gap: str) -> None:
    """That the output cannot be read is a fact about the output."""
    assert gaps(found(check(schema=SHAPE), output)) == [gap]


def test_an_alternative_names_what_the_nearest_one_misses() -> None:
    """anyOf says more than that nothing fits."""
    schema = {"anyOf": [{"type": "integer"}, {"type": "object", "required": ["id"]}]}
    (line,) = found(check(schema=schema), {"a": 1}).improvements
    assert line == (
        "$: {'a': 1} is not valid under any of the given schemas "
        "(nearest: $: 'id' is a required property)"
    )


def test_a_flood_of_errors_is_cut() -> None:
    """Fifty errors are listed and the rest counted; a long value is shortened."""
    evaluation = found(check(schema={"items": {"type": "string"}}), [10**400] + [1] * 99)
    assert len(evaluation.improvements) == 51
    assert evaluation.improvements[-1] == "and 50 more"
    assert max(map(len, evaluation.improvements)) < 400


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (
            {"type": "objekt"},
            "check: schema: $.type: 'objekt' is not valid under any of the given schemas",
        ),
        ({"$ref": "#/$defs/no"}, ("check: schema: '#/$defs/no' is not in the schema, and nothing "
         "is fetched; put it under $defs")),
        ({"$ref": "http://127.0.0.1:9/x"}, ("check: schema: 'http://127.0.0.1:9/x' is not in the "
         "schema, and nothing is fetched; put it under $defs")),
        ({"$schema": "http://a/b"}, ("check: schema: $schema: 'http://a/b' is no known dialect; "
         "give for example 'https://json-schema.org/draft/2020-12/schema'")),
        ([], "check: schema: [] is not an object; give a JSON Schema"),
        ({"patternProperties": {"a": {}}, "unevaluatedProperties": False},
         ("check: schema: patternProperties together with unevaluatedProperties has no time limit; "
         "use additionalProperties")),
    ],
)  # fmt: skip
def test_a_schema_that_cannot_be_is_refused_when_it_is_made(schema: Any, message: str) -> None:
    """Mistakes in a schema are found before anything runs, and nothing is ever fetched."""
    with pytest.raises(ConfigurationError) as raised:
        check(schema=schema)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("schema", "output"),
    [
        ({"pattern": "(a+)+$"}, json.dumps("a" * 5000 + "b")),
        ({"patternProperties": {"(a+)+$": {}}}, {"a" * 5000 + "b": 1}),
        ({"patternProperties": {"(a+)+$": {}}, "additionalProperties": False},
         {"a" * 5000 + "b": 1}),
        ({"propertyNames": {"pattern": "(a+)+$"}}, {"a" * 5000 + "b": 1}),
    ],
)  # fmt: skip
def test_a_hostile_pattern_in_a_schema_is_given_up(schema: Any, output: Any) -> None:
    """The patterns of a schema have a time limit, in every keyword that searches one."""
    assert error(check(schema=schema), output)[0] == "pattern_timeout"


def test_a_schema_without_end_is_a_check_error() -> None:
    """A schema that refers to itself for ever is an error, not a verdict."""
    kind, message = error(check(schema={"$ref": "#"}), {})
    assert kind == "check_error"
    assert message.startswith("check schema: the schema cannot be followed: RecursionError")


def test_further_properties_may_have_a_shape_of_their_own() -> None:
    """additionalProperties as a schema holds for what no other keyword names."""
    schema = {
        "properties": {"a": {}},
        "patternProperties": {"^x_": {}},
        "additionalProperties": {"type": "integer"},
    }
    assert found(check(schema=schema), {"a": "", "x_b": "", "c": 1}).passed
    assert found(check(schema=schema), [1]).passed
    (line,) = found(check(schema=schema), {"c": 1, "d": "e"}).improvements
    assert line == "$.d: 'e' is not of type 'integer'"
    assert found(check(schema={"additionalProperties": True}), {"d": 1}).passed


def test_older_drafts_are_read_as_such() -> None:
    """$schema chooses the draft: in draft 4 exclusiveMaximum is a boolean."""
    schema = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "maximum": 5,
        "exclusiveMaximum": True,
    }
    assert [found(check(schema=schema), n).passed for n in (4, 5)] == [True, False]


# What cannot be a check.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, ("check: there is nothing to check; give a function, command, schema, matches, "
         "contains or a limit such as max_words")),
        ({"max_word": 3}, "check: unknown option 'max_word'; did you mean 'max_words'?"),
        ({"command": ["a"], "max_words": 3}, ("check: unknown option 'max_words'; it takes "
         "command, name, args, env, stdin, cwd, timeout")),
        ({"schema": {}, "nam": ""}, "check: unknown option 'nam'; did you mean 'name'?"),
        ({"max_words": -1}, "check: max_words: -1 is too small; give at least 0"),
        ({"max_words": 1.5}, "check: max_words: 1.5 is not a whole number"),
        ({"contains": ""}, "check: contains: '' is not a text; give one, or a list of them"),
        ({"contains": [1]}, "check: contains: 1 is not a text; give one, or a list of them"),
        ({"matches": "("}, "pattern '(': missing ) at position 1"),
        ({"command": []}, "shell: () is not a command; give a list of words, or a script as text"),
    ],
)  # fmt: skip
def test_a_check_that_could_mean_nothing_is_refused(options: Any, message: str) -> None:
    """Mistakes are found when the check is made, with the nearest valid name."""
    with pytest.raises(ConfigurationError) as raised:
        check(**options)
    assert str(raised.value) == message


def test_a_step_made_of_steps_is_no_function() -> None:
    """A loop that judges is an evaluator as it is."""
    with pytest.raises(ConfigurationError, match="same is made of steps; if it judges"):
        check(Loop(same))
    with pytest.raises(ConfigurationError, match="at_least: 2 is out of range"):
        check(same, at_least=2)


def test_a_fingerprint_follows_the_meaning_of_a_check() -> None:
    """Another limit, function, schema or command is another step."""
    made = [
        check(max_words=1), check(max_words=2), check(min_words=1), check(contains="a"),
        check(contains="a", ignore_case=True), check(schema={}), check(schema={"type": "null"}),
        check(command=["a"]), check(command=["b"]), check(same), check(same, at_least=0.5),
        score(), score("x"), score(scale=(0, 10)), score(pattern="x"), share_passing(["a"]),
        share_passing(["a"], report="b"), checklist({"a": same}), checklist({"b": same}),
        checklist({"a": same}, {"a": 2}), gates(same), gates(same, same),
    ]  # fmt: skip
    assert len({item.fingerprint for item in made}) == len(made)


# Checklists.

ITEMS: dict[str, Any] = {
    "short": {"max_words": 3},
    "has a date / time": check(matches="[0-9]"),
    "polite": lambda text: "please" in text,
}


def test_a_checklist_scores_the_share_that_passes() -> None:
    """Each item is a criterion with its gap, and the feedback lists what fails."""
    evaluation = found(checklist(ITEMS), "please wait a moment")
    assert [(item.name, item.passed) for item in evaluation.criteria] == [
        ("short", False),
        ("has a date / time", False),
        ("polite", True),
    ]
    assert (evaluation.score, evaluation.passed) == (pytest.approx(1 / 3), False)
    assert evaluation.feedback == (
        "2 of 3 items are not met:\n"
        "- short: max_words 3: has 4 words, 1 more than allowed\n"
        "- has a date / time: matches '[0-9]': nothing in it matches"
    )
    assert evaluation.improvements == (
        "short: max_words 3: has 4 words, 1 more than allowed",
        "has a date / time: matches '[0-9]': nothing in it matches",
    )


def test_a_checklist_that_is_met_is_exactly_1() -> None:
    """All items passed means passed, a score of 1 and nothing to say, whatever the weights."""
    evaluation = found(checklist(ITEMS, {"short": 0.1, "polite": 0.7}), "please: 12")
    assert (evaluation.score, evaluation.passed, evaluation.feedback) == (1.0, True, "")


@given(st.lists(st.tuples(st.booleans(), st.floats(0.001, 1000)), min_size=1, max_size=8))
def test_a_grade_is_the_weighted_share(rows: list[tuple[bool, float]]) -> None:
    """The score is in 0..1, is 1 only if all passed, and grows with each item that passes."""
    names = [f"i{n}" for n in range(len(rows))]
    weights = dict(zip(names, (weight for _, weight in rows), strict=True))
    one, none = Evaluation(1.0, True), Evaluation(0.0, False)
    items = [(n, one if met else none) for n, (met, _) in zip(names, rows, strict=True)]
    evaluation = grade(items, weights)
    assert evaluation.score is not None
    assert 0 <= evaluation.score <= 1
    assert evaluation.passed is all(met for met, _ in rows)
    assert (evaluation.score == 1) >= evaluation.passed
    more = grade([(names[0], one), *items[1:]], weights)
    assert more.score is not None
    assert more.score >= evaluation.score


def test_an_undecided_item_leaves_the_list_undecided() -> None:
    """What could not be judged counts neither for nor against; the vote names it."""
    evaluation = found(checklist({"a": score(), "b": ITEMS["polite"]}), "nothing")
    assert (evaluation.undecided, evaluation.score, evaluation.passed) == (True, None, None)
    assert evaluation.votes == ({"item": "a", "undecided": True},)
    assert [item.passed for item in evaluation.criteria] == [False, False]


def test_an_item_without_a_verdict_is_an_error() -> None:
    """A score alone says neither that an item is met nor that it is not."""
    assert error(checklist({"a": lambda text: 0.7})) == (
        "no_verdict",
        (
            "item 'a': its check gave no verdict; return True or False, or say from which score on "
            "it passes: check(function, at_least=0.8)"
        ),
    )


def test_an_error_of_one_item_is_an_error_of_the_list() -> None:
    """Nothing is scored that was not looked at."""
    assert (
        error(checklist({"a": {"max_words": 9}, "b": {"command": "exit 127"}}))[0] == "check_error"
    )


@pytest.mark.parametrize(
    ("items", "weights", "message"),
    [
        ({}, None, "checklist: {} names no items; give an object of checks"),
        ({"tone": same}, {"tune": 1}, "checklist: weights: no item 'tune'; did you mean 'tone'?"),
        ({"a": same}, {"a": 0}, "checklist: weights: a: 0 is out of range; give a number above 0"),
        ({"a": {"max_word": 1}}, None,
         "check: unknown option 'max_word'; did you mean 'max_words'?"),
    ],
)  # fmt: skip
def test_a_checklist_that_could_mean_nothing_is_refused(
    items: Any, weights: Any, message: str
) -> None:
    """Mistakes are found when the checklist is made."""
    with pytest.raises(ConfigurationError) as raised:
        checklist(items, weights)
    assert str(raised.value) == message


class Crash(BaseException):
    """Stands for the death of the process."""


def test_a_resumed_checklist_looks_only_at_what_is_left() -> None:
    """Each item is an effect of its own, on record once it was looked at."""
    looks: list[str] = []

    def look(name: str) -> Any:
        def looked(text: str) -> bool:
            if name == "b" and "crashed" not in looks:
                looks.append("crashed")
                raise Crash
            looks.append(name)
            return True

        return looked

    async def crashed() -> Any:
        journal = MemoryJournal()
        loop = Loop(same, checklist({n: look(n) for n in "abc"}), until=Passed(), name="l")
        with pytest.raises(Crash):
            await run(loop, "x", journal=journal, run_id="r")
        journal.crash()
        result = await run(loop, journal=journal, run_id="r")
        return result, [e.path for e in await journal.entries("r") if e.kind == "finished"]

    result, paths = asyncio.run(crashed())
    assert result.satisfied
    assert looks == ["a", "crashed", "b", "c"]
    assert paths == ["l/1/execute", *(f"l/1/evaluate/{n}" for n in "abc")]


@given(st.lists(st.text("ab/", max_size=3), max_size=6))
def test_segments_are_parts_of_paths_and_each_once(names: list[str]) -> None:
    """Whatever the names, no part has a slash, none is empty and none is there twice."""
    parts = segments(names)
    assert len(set(parts)) == len(parts) == len(names)
    assert all(part and "/" not in part for part in parts)


# Scores.


@pytest.mark.parametrize(
    ("options", "output", "expected"),
    [
        ({}, "Good.\nSCORE: 0.85", 0.85),
        ({}, "score: 8/10", 0.8),
        ({"scale": (0, 10)}, "Score = 7", 0.7),
        ({"scale": (1, 5)}, "Score: 5", 1.0),
        ({"label": "quality"}, "score: 0.1\nquality: 93%", 0.93),
        ({"label": None}, " 0.5 ", 0.5),
        ({}, 0.25, 0.25),
        ({"scale": (0, 100)}, 93.7, 0.937),
        ({}, {"score": 0.5, "why": "…"}, 0.5),
        ({}, {"score": "8/10"}, 0.8),
        ({}, '{"score": 0.5, "why": "score: 0.9"}', 0.5),
        ({}, '```json\n{"score": 0.5}\n```', 0.5),
        ({"pattern": r"(\d+)/10"}, "10/10", 1.0),
        ({"pattern": r"(\d+)/10"}, "it is 9/10 of all", 0.9),
        ({"pattern": r"rated (\d)"}, "Rated 1. RATED 0", 0.0),
        ({"pattern": r"\d of (\d)", "scale": (0, 5)}, "part 5 of 5", 1.0),
        ({"pattern": r"0\.\d+"}, "about 0.75 I would say", 0.75),
        ({"pattern": r"[()](?:x|(?P<n>\d))\\?\(?"}, "(1", 1.0),
        ({"pattern": r"grade:\s*([0-9.]+)"}, "grade: 0.9.", 0.9),
        ({"pattern": r"(?<=is )([0-9.]+)"}, "it is 0.4 now", 0.4),
    ],
)
def test_a_score_is_read_where_it_was_said_to_stand(
    options: dict[str, Any], output: Any, expected: float
) -> None:
    """By label, by pattern, as a member or as the whole output, on the declared scale."""
    evaluation = found(score(**options), output)
    assert (evaluation.score, evaluation.passed) == (expected, None)


@pytest.mark.parametrize(
    ("options", "output", "problem"),
    [
        ({}, "no number", "missing"),
        ({}, "Score: 0,85", "unreadable"),
        ({}, "Score: 1.5", "out_of_range"),
        ({}, {"grade": 1}, "missing"),
        ({}, {"score": None}, "unreadable"),
        ({}, True, "unreadable"),
        ({}, 2, "out_of_range"),
        ({"scale": (0, 10)}, -1, "out_of_range"),
        ({"label": None}, {"a": 1}, "missing"),
        ({"pattern": r"(\d)|x"}, "x", "missing"),
        ({"pattern": r"got (\d+)"}, "got 0,85", "unreadable"),
    ],
)
def test_what_cannot_be_read_is_undecided_and_never_0(
    options: dict[str, Any], output: Any, problem: str
) -> None:
    """The feedback names the problem, the vote keeps what was found."""
    evaluation = found(score(**options), output)
    assert (evaluation.undecided, evaluation.score, evaluation.passed) == (True, None, None)
    assert evaluation.feedback
    assert evaluation.votes[0]["problem"] == problem


def test_differing_scores_are_noted_and_the_last_holds() -> None:
    """An ambiguous reply is a reply; the note is in the record."""
    evaluation = found(score(), "score: 0.2\nscore: 0.9")
    assert evaluation.score == 0.9
    assert evaluation.votes == ({"found": ["0.2", "0.9"], "ambiguous": True},)
    assert found(score(), "score: 0.9\nscore: 0.9").votes == ()


def test_a_score_may_be_that_of_a_step() -> None:
    """`of` is asked about the output; its reply is read, and is the feedback."""
    loop = Loop(same, score(of=lambda text: f"{text} is weak\nscore: 0.3"), until=MaxIterations(1))
    result = run_sync(loop, "It")
    evaluation = result.history[0].evaluation
    assert evaluation == Evaluation(0.3, feedback="It is weak\nscore: 0.3")


@pytest.mark.parametrize(
    "options", [{"label": ""}, {"scale": (1, 0)}, {"pattern": "("}, {"scale": (0, float("nan"))}]
)
def test_a_score_that_could_not_be_read_is_refused(options: dict[str, Any]) -> None:
    """Label, scale and pattern are checked when the evaluator is made."""
    with pytest.raises(ConfigurationError):
        score(**options)


def test_an_unreadable_judge_ends_the_loop_as_unusable() -> None:
    """Undecided twice in a row is a failed loop and not a score of 0."""
    result = run_sync(Loop(same, score(), until=ScoreAtLeast(0.5)), "no number")
    assert (result.status, result.reason, result.iterations) == ("failed", "evaluator_unusable", 2)


# The share of tests that pass.


def printing(text: str, code: int = 0) -> str:
    """Return a script that prints a text and exits with a code."""
    return f"cat <<'EOF'\n{text}\nEOF\nexit {code}"


@pytest.mark.parametrize(
    ("text", "code", "share", "gap"),
    [
        ("===== 9 passed in 0.12s =====", 0, 1.0, ""),
        ("7 passed, 2 failed in 0.12s", 1, 7 / 9, "7 of 9 tests pass"),
        ("2 failed, 7 passed, 3 skipped, 1 xfailed, 4 warnings in 61.20s (0:01:01)", 1, 7 / 9,
         "7 of 9 tests pass"),
        ("1 passed, 1 error in 0.1s", 1, 0.5, "1 of 2 tests pass"),
        ("2 errors in 0.1s", 2, 0.0, "0 of 2 tests pass"),
        ("no tests ran in 0.01s", 5, 0.0, "no test ran"),
        ("3 skipped in 0.01s", 0, 0.0, "no test ran"),
        ("\x1b[32m===== \x1b[1m1 passed\x1b[0m\x1b[32m in 0.01s\x1b[0m =====", 0, 1.0, ""),
        ("9 passed in 0.12s\n1 passed, and more in 0.1s", 0, 1.0, ""),
        ("1 failed in 1.00s\n9 passed in 0.12s\nbye", 0, 1.0, ""),
        ("9 passed in 0.12s", 1, 0.9, "9 of 9 tests pass, but the command exited with 1"),
        ("SyntaxError: invalid syntax", 1, 0.0,
         "tests prints no summary of pytest; give report= for JUnit's XML, and exited with 1"),
        ("10 cats in 0.1 hours", 2, 0.0,
         "tests prints no summary of pytest; give report= for JUnit's XML, and exited with 2"),
    ],
)  # fmt: skip
def test_the_share_is_read_from_the_summary(text: str, code: int, share: float, gap: str) -> None:
    """Skipped and expected failures do not count; what does not even run scores 0."""
    evaluation = found(share_passing(printing(text, code)), "x")
    assert evaluation.score == pytest.approx(share)
    assert evaluation.passed is (share == 1.0)
    assert gaps(evaluation) == ([gap] if gap else [])
    assert evaluation.feedback.startswith(gap)


def test_the_failing_tests_are_the_improvements() -> None:
    """What pytest lists as failed is what is to be done."""
    text = "FAILED a.py::b - assert 1 == 2\nERROR c.py\n1 failed, 1 error in 0.1s"
    evaluation = found(share_passing(printing(text, 1)), "x")
    assert evaluation.improvements == ("FAILED a.py::b - assert 1 == 2", "ERROR c.py")


REPORT = """<?xml version="1.0"?><testsuites><testsuite>
<testcase classname="m" name="a"/><testcase classname="m" name="b"><skipped/></testcase>
<testcase classname="m" name="c"><failure message="1 != 2">…</failure></testcase>
<testcase name="d"><error message="boom"/><system-out/></testcase>
</testsuite></testsuites>"""


def test_the_share_is_read_from_a_report(tmp_path: Path) -> None:
    """A file in JUnit's XML that the command writes is counted case by case."""
    script = f"cat > out.xml <<'EOF'\n{REPORT}\nEOF\nexit 1"
    evaluation = found(share_passing(script, report="out.xml", cwd=tmp_path), "x")
    assert (evaluation.score, evaluation.passed) == (pytest.approx(1 / 3), False)
    assert evaluation.improvements == ("m::c: 1 != 2", "d: boom")


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("true", "did not write {path}"),
        ("echo '<testcase' > out.xml", "{path} cannot be read as JUnit's XML: "),
        ("echo '<!DOCTYPE a><a/>' > out.xml", "it has a document type, which no report needs"),
        ("head -c 17000000 /dev/zero > out.xml", "it is larger than 16777216 bytes"),
    ],
)
def test_a_report_that_cannot_be_read_is_no_verdict(
    script: str, message: str, tmp_path: Path
) -> None:
    """With exit code 0 it is a check error; with another the tests did not even run."""
    (tmp_path / "out.xml").write_text(REPORT)  # of an earlier run: it says nothing of this one
    path = tmp_path / "out.xml"
    kind, said = error(share_passing(script, report="out.xml", cwd=tmp_path))
    assert (kind, message.format(path=path) in said) == ("check_error", True), said
    path.unlink()
    failed = share_passing(f"{script}; exit 1", report="out.xml", cwd=tmp_path)
    assert (found(failed, "x").score, found(failed, "x").passed) == (0.0, False)


@pytest.mark.parametrize("command", ["exit 127", ["no-such-program"], "true"])
def test_tests_that_cannot_be_run_are_a_check_error(command: Any) -> None:
    """A command that cannot start, or says nothing of tests, decides nothing."""
    assert error(share_passing(command))[0] == "check_error"


@pytest.mark.slow
def test_the_summary_of_pytest_itself_is_read(tmp_path: Path) -> None:
    """The counts are those of a real run, by summary and by report."""
    (tmp_path / "test_it.py").write_text(
        "import pytest\ndef test_a(): pass\ndef test_b(): assert 1 == 2\n"
        "@pytest.mark.skip\ndef test_c(): pass\n@pytest.mark.xfail\ndef test_d(): assert 0\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "--junitxml=a.xml", "test_it.py"]
    by_summary = found(share_passing(command, cwd=tmp_path), "x")
    by_report = found(share_passing("cp a.xml b.xml; exit 1", report="b.xml", cwd=tmp_path), "x")
    assert by_summary.score == by_report.score == 0.5
    assert by_summary.improvements == ("FAILED test_it.py::test_b - assert 1 == 2",)
    assert by_report.improvements == ("test_it::test_b: assert 1 == 2",)


# Gates.


def saying(**fields: Any) -> Any:
    """Return an evaluator that always says the same."""
    return step(lambda value: Evaluation(**fields), inline=True, name="say")


def test_a_failing_gate_ends_the_look_and_cannot_be_overruled() -> None:
    """What comes after is not asked, the score is 0, and the gate's own score is kept."""
    asked: list[str] = []
    judge = check(lambda text: asked.append(text) or Evaluation(1.0, True))
    gate = saying(score=0.9, passed=False, feedback="one test fails")
    evaluation = found(gates(check(min_words=1), gate, judge), "a")
    assert asked == []
    assert (evaluation.score, evaluation.passed) == (0.0, False)
    assert evaluation.feedback == "one test fails"
    assert evaluation.votes == ({"gate": "say", "score": 0.9},)


def test_open_gates_leave_the_last_word_to_the_last() -> None:
    """The score is the last one's, the verdict that of all, criteria and improvements add up."""
    last = saying(score=0.6, passed=False, feedback="dull", improvements=("a joke",))
    evaluation = found(gates(check(min_words=1), last), "a")
    assert (evaluation.score, evaluation.passed) == (0.6, False)
    assert (evaluation.feedback, evaluation.improvements) == ("dull", ("a joke",))
    assert evaluation.criteria == (Criterion("min_words 1", True),)
    assert found(gates(check(min_words=1), saying(score=0.6)), "a").passed is None
    assert found(gates(check(min_words=1), saying(score=0.6, passed=True)), "a").passed is True
    assert found(gates(saying(score=0.7), saying(passed=True)), "a").score == 0.7


def test_an_undecided_gate_leaves_the_whole_undecided() -> None:
    """Nothing after it is asked, and nothing is scored."""
    evaluation = found(gates(score(), saying(score=1.0, passed=True)), "no number")
    assert (evaluation.undecided, evaluation.score, evaluation.passed) == (True, None, None)


def test_what_fails_a_gate_is_never_the_best() -> None:
    """An output that passed its gates outranks one that did not, however well that was liked."""
    outputs = iter(["bad one", "good"])
    tests = check(lambda text: Evaluation(0.95, text == "good"), name="tests")
    loop = Loop(
        step(lambda value: next(outputs), inline=True),
        gates(tests, saying(score=0.1, passed=False)),
        until=MaxIterations(2),
    )
    result = run_sync(loop, "x")
    assert [item.score for item in result.history] == [0.0, 0.1]
    assert result.output == "good"


def test_each_gate_is_an_effect_of_its_own() -> None:
    """Gates of one name get a number; the journal has each."""

    async def recorded() -> list[str]:
        journal = MemoryJournal()
        loop = Loop(same, gates(check(min_words=1), check(min_words=1)), until=Passed(), name="l")
        await run(loop, "x", journal=journal, run_id="r")
        return [e.path for e in await journal.entries("r") if e.kind == "finished"]

    paths = asyncio.run(recorded())
    assert paths == ["l/1/execute", "l/1/evaluate/min_words", "l/1/evaluate/min_words-2"]
    with pytest.raises(ConfigurationError, match="gates: give at least one evaluator"):
        gates()


def test_a_verdict_follows_from_its_criteria() -> None:
    """Without criteria nothing is missing; what is said may be said differently."""
    assert verdict([]) == Evaluation(1.0, True)
    made = verdict([Criterion("a", False)], feedback="f", improvements=["i"])
    assert (made.feedback, made.improvements, made.score) == ("f", ("i",), 0.0)
