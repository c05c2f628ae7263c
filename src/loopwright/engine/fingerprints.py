"""Fingerprints: digests that change when the meaning of a step does.

A recorded run resumes only with steps of the same fingerprints, or of one that they had in a former version.

A change of this package that gives a step another fingerprint, although a recorded run may continue with it, raises
`VERSION` (once for each release) and keeps the former text: the property `fingerprint`, decorated with `fingerprinted`,
has a branch `if former_version() < 2:` with what it was before version 2. The steps around it follow by themselves.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from types import CodeType
from typing import TYPE_CHECKING, Any

from typing_extensions import TypeVar

__all__ = [
    "KNOWN_AS",
    "VERSION",
    "changed_parts",
    "digest_of",
    "fingerprinted",
    "former_fingerprints",
    "former_version",
    "known_as",
    "parts_of",
    "source_digest",
]

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
