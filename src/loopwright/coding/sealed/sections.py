"""Settings files of which only some parts belong to a check: their parts are compared and put back."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence

from ...records.codec import Json

__all__ = ["parts_of", "with_parts"]

_TABLE_HEADER = re.compile(r"\s*\[\[?[^\[\]]+\]\]?\s*(?:#.*)?")
_INDENT = re.compile(r"\n([ \t]+)\"")


def parts_of(path: str, content: bytes | None, names: Sequence[str]) -> Json:
    """Return the named parts of a settings file; of one that cannot be read, all of it.

    >>> parts_of("package.json", b'{"name": "calc", "scripts": {"test": "node --test"}}', ["scripts", "jest"])
    {'scripts': {'test': 'node --test'}}
    """
    if content is None:
        return {}
    text = content.decode("utf-8", "replace")
    try:
        value = _read(path, text)
    except (ValueError, RecursionError):
        return text  # it differs from any that can be read
    parts = {name: _part(value, name.split(".")) for name in names}
    return {name: part for name, part in parts.items() if part is not None}


def with_parts(path: str, content: bytes, base: bytes | None, names: Sequence[str]) -> bytes | None:
    """Return a settings file with the named parts of the base, or None if only the whole file can be put back."""
    text = content.decode("utf-8", "replace")
    former = (base or b"").decode("utf-8", "replace")
    try:
        replaced = (
            _with_tables(text, former, names)
            if path.endswith(".toml")
            else _with_keys(text, former, names)
        )
        result = _read(path, replaced)
        rest, wanted = _read(path, text), _read(path, former) if former else {}
    except (ValueError, RecursionError, AttributeError):
        return None
    # Without a writer for TOML, a form that the lines do not show is noticed here.
    same = all(_part(result, n.split(".")) == _part(wanted, n.split(".")) for n in names)
    if not same or _without(result, names) != _without(rest, names):
        return None
    # A file without another change keeps its form.
    return base if base is not None and result == wanted else replaced.encode()


def _read(path: str, text: str) -> Json:
    return tomllib.loads(text) if path.endswith(".toml") else json.loads(text)


def _part(value: Json, names: Sequence[str]) -> Json:
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _without(value: Json, names: Sequence[str]) -> Json:
    """Return a value without the named parts, and without tables that have nothing else."""
    if not isinstance(value, Mapping):
        return value
    heads = {name.partition(".")[0]: name.partition(".")[2] for name in names}
    inner = {
        head: [n[len(head) + 1 :] for n in names if n.startswith(f"{head}.")] for head in heads
    }
    kept = {
        key: _without(item, inner[key]) if key in heads else item
        for key, item in value.items()
        if key not in names
    }
    return {key: item for key, item in kept.items() if key not in heads or item != {}}


def _with_keys(text: str, former: str, names: Sequence[str]) -> str:
    value: dict[str, Json] = json.loads(text)
    wanted = json.loads(former) if former else {}
    for name in names:
        value.pop(name, None) if name not in wanted else value.update({name: wanted[name]})
    indent = _INDENT.search(text)
    end = "\n" if text.endswith("\n") else ""
    return json.dumps(value, indent=indent[1] if indent else None, ensure_ascii=False) + end


def _with_tables(text: str, former: str, names: Sequence[str]) -> str:
    kept = "".join(table for name, table in _tables(text) if not _is_section_below(name, names))
    put_back = "".join(table for name, table in _tables(former) if _is_section_below(name, names))
    gap = "\n" if put_back and kept and not kept.endswith("\n") else ""
    return f"{kept}{gap}{put_back}"


def _is_section_below(name: str, names: Sequence[str]) -> bool:
    return any(name == one or name.startswith(f"{one}.") for one in names)


def _tables(text: str) -> Iterator[tuple[str, str]]:
    """Iterate over the tables of a TOML file: the dotted name of each, and its lines with the header."""
    name, lines, quote = "", list[str](), ""
    for line in text.splitlines(keepends=True):
        if not quote and _TABLE_HEADER.fullmatch(line.rstrip("\r\n")):
            yield name, "".join(lines)
            name, lines = _name_of(line), []
        for sign in ('"""', "'''"):
            if quote in ("", sign) and line.count(sign) % 2:
                quote = "" if quote else sign
        lines.append(line)
    yield name, "".join(lines)


def _name_of(header: str) -> str:
    """Return the dotted name of a table, which may be quoted in its header."""
    value: Json = tomllib.loads(header)
    names = []
    while isinstance(value, Mapping) and value:
        name, value = next(iter(value.items()))
        names.append(name)
        value = value[0] if isinstance(value, list) else value
    return ".".join(names)
