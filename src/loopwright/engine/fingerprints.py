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
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import CodeType
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = [
    "KNOWN_AS",
    "VERSION",
    "digest_of",
    "fingerprinted",
    "former_fingerprints",
    "former_version",
    "known_as",
    "source_digest",
]

Function = Callable[..., Any]
_Function = TypeVar("_Function", bound=Function)
KNOWN_AS = "__loopwright_step__"  # the attribute that `known_as` sets
VERSION = 2  # of fingerprints; 1 is that of journals that record none
_version = ContextVar("fingerprint version", default=VERSION)
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # of an object, which differs in each process


if TYPE_CHECKING:
    from functools import cached_property as fingerprinted
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
            raise AttributeError("fingerprint cannot be set")


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
    name = str(getattr(function, "__qualname__", function)).rpartition("<locals>.")[2]
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
