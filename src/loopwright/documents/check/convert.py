"""Documents as native YAML in the style of people."""

from __future__ import annotations

import re
import textwrap

import yaml

from ...records.codec import Json
from ..schema.document import ACTIONS, Document
from ..yaml.scalars import resolve

__all__ = ["to_native_yaml"]

# The order in which people write the fields of a step; the others follow in their order.
_FIRST = ("name", "description", "needs", "if", *ACTIONS)
_HEAD = ("schema", "name", "description", "version", "templates", "input", "env")
_LAST = ("otherwise",)
_TEXT = "tag:yaml.org,2002:str"
_SHORT = 72  # characters of a list of names that stays on one line
# Control characters, and characters that only some editors treat as the end of a line.
_ODD = re.compile(
    "[^\t\n -~\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]|[\u2028\u2029]"
)


class _Printer(yaml.SafeDumper):
    """Prints values by the YAML 1.2 core schema, which `yaml.reader` reads."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Indent the items of a list below their key."""
        # PyYAML would write the items of a list at the level of their key.
        del indentless
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Json) -> bool:
        """Write no aliases: a reader of the result expects values, not references."""
        del data
        return True


def _text(printer: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Return a text as a block if it has several lines, quoted if it would be read as another value."""
    return printer.represent_scalar(_TEXT, text, style=_style(text))


def _style(text: str) -> str | None:
    if _ODD.search(text):
        return '"'
    if "\n" in text:
        # A block that keeps several last line breaks would include the empty line between two steps.
        return "|" if text.strip("\n") and not text.endswith("\n\n") else '"'
    return None if _is_text(text) else '"'


def _is_text(text: str) -> bool:
    # By our own scalars (YAML 1.2), not by PyYAML's: "yes" and "1:30" are texts here.
    try:
        return resolve(text) == text
    except ValueError:
        return False


def _list(printer: yaml.SafeDumper, items: list[Json]) -> yaml.SequenceNode:
    """Return a list of a few names on one line."""
    names = all(isinstance(item, str) and "\n" not in item for item in items)
    short = names and sum(len(item) + 2 for item in items) <= _SHORT
    return printer.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=short)


_Printer.add_representer(str, _text)
_Printer.add_representer(list, _list)


def to_native_yaml(document: Document) -> str:
    """Return a document as native YAML, in block style and with long texts as blocks.

    Args:
        document: A document, such as one of `Loaded.documents`.

    Returns:
        YAML that loads as the same document.

    Example:
        >>> from loopwright.documents.schema.document import Document
        >>> document = Document.model_validate(
        ...     {"schema": "loopwright/1", "name": "x", "steps": [{"name": "a", "set": 1}]}
        ... )
        >>> print(to_native_yaml(document))
        schema: loopwright/1
        name: x
        <BLANKLINE>
        steps:
          - name: a
            set: 1
        <BLANKLINE>
    """
    dumped = document.model_dump(by_alias=True, exclude_unset=True)
    data = {key: dumped[key] for key in (*_HEAD, *dumped) if key in dumped}
    steps = [_printed([_step(step)]) for step in data.pop("steps")]
    output = {"output": data.pop("output")} if "output" in data else {}
    printed = "\n".join(textwrap.indent(step, "  ", _has_more) for step in steps)
    end = f"\n{_printed(output)}" if output else ""
    return f"{_printed(data)}\nsteps:\n{printed}{end}"


def _has_more(line: str) -> bool:
    return line != "\n"


def _printed(data: Json) -> str:
    printed: str = yaml.dump(
        # An unlimited width: folded lines would change the text of prompts.
        data, Dumper=_Printer, sort_keys=False, allow_unicode=True, width=1_000_000,
        default_flow_style=False,
    )  # fmt: skip
    return printed


def _step(action: dict[str, Json]) -> dict[str, Json]:
    """Return a step with its fields, and those of inner steps, in the usual order."""
    inner: dict[str, Json] = {
        key: [_step(step) for step in action[key]]
        for key in ("steps", "parallel", "fallback")
        if action.get(key)
    }
    for key in ("loop", "each"):
        if action.get(key):
            inner[key] = {**action[key], "execute": _step(action[key]["execute"])}
    fields = {**action, **inner}
    middle = [key for key in fields if key not in (*_FIRST, *_LAST)]
    return {key: fields[key] for key in (*_FIRST, *middle, *_LAST) if key in fields}
