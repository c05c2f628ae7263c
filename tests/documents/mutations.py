"""Documents that go wrong in every way: mutations of good ones, and texts that only mean harm."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import yaml

__all__ = ["edited", "hostile", "mutated"]

SCALARS = (
    "", "~", "null", "true", "no", "0", "-1", "1e309", ".nan", ".inf", "-0.0", "9" * 500, "0x1f", "1:30", "012",
    "[]", "{}", "[[]]", "{a: }", "'", '"', "*a", "&a", "<<: *a", "!!python/object:os.system x", "!x", "|", ">-",
    "{{ input }}", "{{", "{% for a in b %}", "{{ a.b.c() }}", "{{ 'a' * 10**9 }}", "\u2028", "\ufeff", "\u202e",
    '"\\ud800"', '"\\0"', '"\\x1b[31m"', "../../../etc/passwd", "/etc/passwd", "file:///etc/passwd", "a b", "é" * 90,
    "passed", "max_iterations", "{max_iterations: 1001}", "{score_at_least: 2}", "[passed, []]", "{any_of: {}}",
    "{all_of: [{any_of: []}]}", "{timeout: 1y}", "{budget: {usd: -1}}", "steps:missing", "os:system", "x" * 5000,
    "{output_matches: '((((a+)+)+)+)$'}", "{output_matches: '('}", "every_step", "document.yaml", "{passed: {}}",
)  # fmt: skip
KEYS = (
    "schema", "$schema", "name", "steps", "loop", "loops", "until", "guards", "execute", "evaluate", "adapt", "needs",
    "if", "with", "workflow", "python", "shell", "prompt", "set", "each", "items", "parallel", "fallback", "consensus",
    "judge", "check", "score", "checklist", "rotate", "merge", "env", "input", "output", "timeout", "model", "prices",
    "budget", "max_iterations", "on_failure", "stdin", "cwd", "<<", "*a", "? ", "[]", "{}", "0", "-", "orchestrator",
)  # fmt: skip


WORDS = (
    "a",
    "more",
    "Write it again.",
    "in 2 words",
    "not: yes",
    "# 1",
    "{{ input }}",
    "naïve",
    "x" * 300,
)
CHOICES = {
    "on_failure": ("halt", "continue", "retry"), "keep": ("best", "last"), "required": (True, False),
    "max_iterations": (1, 3, 7), "max_loops": (1, 4), "temperature": (0, 0.3, 1), "max_tokens": (10, 4000),
    "timeout": (1, "30s", "5m"), "score_threshold": (0, 0.5, 1), "max_retries": (0, 2), "parallel": (True, False),
    "description": WORDS, "version": ("1", 1.1, "2.0"), "mode": ("refine", "iterate"), "at_once": (1, 4),
}  # fmt: skip


def edited(source: random.Random, text: str) -> str:
    """Return a document as its author might change it: it mostly still is one."""
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        return _laid_out(source, text)
    if source.random() < 0.4:
        return _laid_out(source, text)
    for _ in range(source.choice((1, 1, 2, 3))):
        source.choice(_EDITS)(source, value)
    try:
        text = (
            json.dumps(value, indent=source.choice((None, 1)))
            if source.random() < 0.2
            else yaml.safe_dump(value, sort_keys=False, allow_unicode=source.random() < 0.5)
        )
    except (yaml.YAMLError, ValueError, TypeError):
        pass
    return text


def _laid_out(source: random.Random, text: str) -> str:
    """Add lines that mean nothing, or end lines in another way."""
    lines = text.split("\n")
    for _ in range(source.choice((1, 2, 5))):
        lines.insert(
            source.randrange(len(lines) + 1), source.choice(("", "# a remark", "   ", "  # x: ["))
        )
    return source.choice(("\n", "\n", "\r\n")).join(lines)


def _chosen(source: random.Random, value: Any) -> None:
    """Give a field another of its values."""
    places = [(of, key) for of, key in _places(value) if key in CHOICES]
    if places:
        container, key = source.choice(places)
        container[key] = source.choice(CHOICES[key])


def _worded(source: random.Random, value: Any) -> None:
    """Add words to a text."""
    places = [
        (of, key) for of, key in _places(value) if isinstance(of[key], str) and " " in of[key]
    ]
    if places:
        container, key = source.choice(places)
        container[key] += " " + source.choice(WORDS)


def _reordered(source: random.Random, value: Any) -> None:
    """Write the keys of a mapping in another order."""
    mappings = [value, *(of[key] for of, key in _places(value))]
    mapping = source.choice([item for item in mappings if isinstance(item, dict)] or [{}])
    items = list(mapping.items())
    source.shuffle(items)
    mapping.clear()
    mapping.update(items)


def _repeated(source: random.Random, value: Any) -> None:
    """Repeat a named item of a list under another name."""
    lists = [of[key] for of, key in _places(value) if isinstance(of[key], list)]
    named = [
        (rows, row) for rows in lists for row in rows if isinstance(row, dict) and "name" in row
    ]
    if named:
        rows, row = source.choice(named)
        copy = json.loads(json.dumps(row, default=str))
        rows.append({**copy, "name": f"{row['name']}{source.randrange(9)}"})


def _left_out(source: random.Random, value: Any) -> None:
    """Leave out a field that need not be there."""
    places = [(of, key) for of, key in _places(value) if key in CHOICES]
    if places:
        container, key = source.choice(places)
        del container[key]


_EDITS: tuple[Callable[[random.Random, Any], None], ...] = (
    _chosen, _worded, _reordered, _repeated, _left_out,
)  # fmt: skip


def mutated(source: random.Random, text: str, corpus: list[str]) -> str:
    """Return a document with a few things broken."""
    if source.random() < 0.6:
        text = _reshaped(source, text, corpus)
    for _ in range(source.choice((0, 1, 1, 2, 3, 6))):
        text = source.choice(_TEXTUAL)(source, text)
    return text


def _reshaped(source: random.Random, text: str, corpus: list[str]) -> str:
    """Change the values of a document: other types, other keys, parts of other documents."""
    try:
        value = yaml.safe_load(text)
        other = yaml.safe_load(source.choice(corpus))
    except (yaml.YAMLError, ValueError):
        return text
    for _ in range(source.choice((1, 1, 2, 4))):
        places = list(_places(value))
        if not places:
            break
        container, key = source.choice(places)
        kind = source.random()
        if kind < 0.35:
            container[key] = _scalar(source)
        elif kind < 0.55:
            donor, name = source.choice(list(_places(other)) or [({0: 0}, 0)])
            container[key] = json.loads(json.dumps(donor[name], default=str))
        elif kind < 0.7:
            del container[key]
        elif kind < 0.85 and isinstance(container, dict):
            container[source.choice(KEYS)] = container.pop(key)
        else:
            container[key] = (
                [container[key]] if source.random() < 0.5 else {source.choice(KEYS): container[key]}
            )
    if source.random() < 0.3:
        return json.dumps(value, default=str, ensure_ascii=source.random() < 0.5)
    try:
        return yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
    except (yaml.YAMLError, ValueError, RecursionError):
        return text


def _scalar(source: random.Random) -> Any:
    text = source.choice(SCALARS)
    if source.random() < 0.5:
        return text
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        return text


def _places(value: Any) -> Any:
    keys: Any = (
        value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    )
    for key in keys:
        yield value, key
        yield from _places(value[key])


def _cut(source: random.Random, text: str) -> str:
    start = source.randrange(len(text) + 1)
    return text[:start] + text[start + source.choice((1, 1, 5, 40, 400)) :]


def _line(source: random.Random, text: str) -> str:
    lines = text.split("\n")
    at = source.randrange(len(lines))
    kind = source.randrange(4)
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(at, lines[source.randrange(len(lines))])
    elif kind == 2:
        lines[at] = " " * source.randrange(4) + lines[at]
    else:
        lines[at] = lines[at][source.randrange(3) :]
    return "\n".join(lines)


def _insert(source: random.Random, text: str) -> str:
    at = source.randrange(len(text) + 1)
    return text[:at] + source.choice((*SCALARS, *KEYS)) + text[at:]


def _value(source: random.Random, text: str) -> str:
    lines = text.split("\n")
    at = source.randrange(len(lines))
    key, colon, _ = lines[at].partition(": ")
    lines[at] = f"{key}{colon or ': '}{source.choice(SCALARS)}"
    return "\n".join(lines)


def _key(source: random.Random, text: str) -> str:
    lines = text.split("\n")
    at = source.randrange(len(lines))
    before, colon, rest = lines[at].partition(":")
    indent = len(before) - len(before.lstrip(" -"))
    lines[at] = before[:indent] + source.choice(KEYS) + colon + rest
    return "\n".join(lines)


def _noise(source: random.Random, text: str) -> str:
    at = source.randrange(len(text) + 1)
    return (
        text[:at]
        + chr(source.choice((0, 7, 9, 27, 0x85, 0x2028, 0xD800, 0xFEFF, 0xFFFF, 0x1F600)))
        + text[at:]
    )


_TEXTUAL: tuple[Callable[[random.Random, str], str], ...] = (
    _cut, _line, _insert, _value, _key, _noise,
)  # fmt: skip

_HEAD = "schema: loopwright/1\nname: x\nsteps:\n"


def _brackets(source: random.Random) -> str:
    return source.choice("[{(-?&") * source.choice((60, 70, 1000, 40_000))


def _nested(source: random.Random) -> str:
    depth = source.choice((5, 20, 60, 70, 2000))
    return "[" * depth + "x" + "]" * depth


def _aliases(source: random.Random) -> str:
    width, levels = source.choice((2, 9, 10)), source.choice((5, 8, 12, 30))
    rows = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * width)}]" for i in range(1, levels)]
    return _HEAD + "- {name: a, set: 1}\n" + "\n".join(["a0: &a0 [x]", *rows])


def _merges(source: random.Random) -> str:
    levels = source.choice((3, 8, 20))
    rows = [f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}" for i in range(1, levels)]
    return "\n".join(["a0: &a0 {k: v}", *rows])


def _long(source: random.Random) -> str:
    size = source.choice((1 << 16, (1 << 20) - 200, 1 << 20, (1 << 20) + 5))
    kind = source.choice(
        ("x", "{", "{{ a }}", "[", "é", "\\", "a.", "1", "\n", "{% if a %}", "((", " ")
    )
    field = source.choice(("set", "prompt", "shell", "python", "if", "name", "nothing", "timeout"))
    text = json.dumps((kind * size)[:size], ensure_ascii=False)
    action = "" if field in ("set", "prompt", "shell", "python") else "set: 1, "
    return f"{_HEAD}- {{name: a, {action}{field}: {text}}}\n"


def _many(source: random.Random) -> str:
    count = source.choice((100, 500))
    needs = source.choice(("", ", needs: [s0]", ", needs: [nobody]"))
    rows = [f"- {{name: s{i}, set: '{{{{ s{i - 1} }}}}'{needs}}}" for i in range(count)]
    return _HEAD + "\n".join(rows)


def _deep(source: random.Random) -> str:
    kind = source.choice(("loop", "steps", "each", "until"))
    depth = source.choice((3, 8, 15, 25))
    inner = "{set: 1}"
    for level in range(depth):
        if kind == "steps":
            inner = f"{{steps: [{{name: s{level}, {inner[1:]}]}}"
        elif kind == "each":
            inner = f"{{each: {{items: [1], execute: {inner}}}}}"
        elif kind == "loop":
            inner = f"{{loop: {{execute: {inner}, max_iterations: 1000}}}}"
    until = "passed"
    for _ in range(depth):
        until = f"{{all_of: [{until}, passed]}}"
    if kind == "until":
        inner = f"{{loop: {{execute: {{set: 1}}, until: {until}}}}}"
    return f"{_HEAD}- {{name: a, {inner[1:]}\n"


def _itself(source: random.Random) -> str:
    return (
        _HEAD
        + f"- {{name: a, workflow: {source.choice(('x', 'document', 'document.yaml', './document.yaml'))}}}\n"
    )


def _random(source: random.Random) -> str:
    return "".join(
        chr(source.choice((source.randrange(128), source.randrange(0x3000)))) for _ in range(300)
    )


_HOSTILE: tuple[Callable[[random.Random], str], ...] = (
    _brackets, _nested, _aliases, _merges, _long, _many, _deep, _itself, _random,
)  # fmt: skip


def hostile(source: random.Random) -> str:
    """Return a text that is made to hang, to crash or to be misread."""
    return source.choice(_HOSTILE)(source)
