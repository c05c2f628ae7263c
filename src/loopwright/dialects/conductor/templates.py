"""The templates of Conductor as native ones: the same language, with other names for outputs and inputs."""

from __future__ import annotations

from collections.abc import Callable

from jinja2 import Environment, TemplateSyntaxError

__all__ = ["InvalidTemplate", "Names", "converted", "expression"]

_LEXER = Environment(autoescape=False)  # noqa: S701 only its lexer is used; nothing is rendered here
_WORDS = frozenset({
    "and", "or", "not", "in", "is", "if", "elif", "else", "for", "endfor", "endif", "set", "endset", "true", "false",
    "none", "True", "False", "None", "raw", "endraw", "filter", "endfilter", "loop", "recursive", "macro", "endmacro",
})  # fmt: skip
_AROUND = ("variable_begin", "variable_end", "block_begin", "block_end", "raw_begin", "raw_end")


class InvalidTemplate(Exception):
    """A template, or a name in it, that has no native form."""


# What a name with its fields means: the expression, and how many of the fields it used; None for a name that stays, such
# as a variable of a `for`. The last argument says that a name may be a field of an agent's own output.
Names = Callable[[str, list[str], bool], tuple[str, int] | None]


def converted(text: str, names: Names) -> str:
    """Return a template with native names.

    Raises:
        InvalidTemplate: for a template that cannot be read, or a name without a meaning.
    """
    return _rewritten(text, names, bare=False)


def expression(text: str, names: Names) -> str:
    """Return a condition as an expression: a template of one value, or an expression without braces.

    Raises:
        InvalidTemplate: as `converted`.
    """
    inner = text.strip()
    bare = "{{" not in inner and "{%" not in inner
    if not bare:
        if not (inner.startswith("{{") and inner.endswith("}}")) or inner.count("{{") > 1:
            raise InvalidTemplate(f"{text!r:.80} is not one condition; write {{{{ CONDITION }}}}")
        inner = inner[2:-2]
    rewritten = _rewritten(f"{{{{{inner}}}}}", names, bare=bare)
    return rewritten[2:-2].strip()


def _rewritten(text: str, names: Names, *, bare: bool) -> str:
    try:
        tokens = [(kind, value) for _, kind, value in _LEXER.lex(text)]
        _LEXER.parse(text)
    except (TemplateSyntaxError, RecursionError) as error:
        what = (
            error.message if isinstance(error, TemplateSyntaxError) else "it is nested too deeply"
        )
        raise InvalidTemplate(f"is not a template: {what}") from None
    result: list[str] = []
    before = ""  # the last token of the expression that is no space
    i = 0
    while i < len(tokens):
        kind, value = tokens[i]
        if kind == "name" and value not in _WORDS and before not in (".", "|", "is", "for", "set"):
            fields, ends = _fields(tokens, i + 1)
            if (found := names(value, fields, bare)) is not None:
                path, used = found
                i = ends[used]
                defined, after = _is_defined(tokens, i)
                # A step that did not run has the output none.
                result.append(
                    path if defined is None else f"(({path} | default(none)) is {defined})"
                )
                i, before = after, ")"
                continue
        result.append(value)
        if kind in _AROUND:
            before = ""
        elif kind != "whitespace" and not (before == "is" and value == "not"):
            before = value
        i += 1
    return "".join(result)


def _fields(tokens: list[tuple[str, str]], at: int) -> tuple[list[str], list[int]]:
    """Return the fields after a name, and the index of the token after each number of them."""
    fields, ends = list[str](), [at]
    while at + 1 < len(tokens) and tokens[at] == ("operator", ".") and tokens[at + 1][0] == "name":
        fields.append(tokens[at + 1][1])
        at += 2
        ends.append(at)
    return fields, ends


def _is_defined(tokens: list[tuple[str, str]], at: int) -> tuple[str | None, int]:
    """Return the native test in place of `is defined` and `is not defined`, and the index of the token after it."""
    words, end = list[str](), at
    while end < len(tokens) and len(words) < 3:
        kind, value = tokens[end]
        if kind == "name":
            words.append(value)
        elif kind != "whitespace":
            break
        end += 1
        if words in (["is", "defined"], ["is", "not", "defined"]):
            return ("not none" if len(words) == 2 else "none"), end
    return None, at
