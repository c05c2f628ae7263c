"""Fingerprints: digests that change when the meaning of a step does.

A recorded run resumes only with steps of the same fingerprints.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable
from types import CodeType
from typing import Any, TypeVar

__all__ = ["KNOWN_AS", "digest_of", "known_as", "source_digest"]

Function = Callable[..., Any]
_Function = TypeVar("_Function", bound=Function)
KNOWN_AS = "__loopwright_step__"  # the attribute that `known_as` sets
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # of an object, which differs in each process


def known_as(fingerprint: str) -> Callable[[_Function], _Function]:
    """Give a function of this package its fingerprint: a name and a version, such as `adapters.feedback/1`.

    A run in flight then goes on where the function was moved, was written anew or runs under another Python;
    the version changes when its meaning does.
    """

    def made(function: _Function) -> _Function:
        setattr(function, KNOWN_AS, fingerprint)
        return function

    return made


def source_digest(function: Function) -> str:
    """Return a digest of a function's name and of what it does; where it is defined does not matter.

    A function of this package goes by the name that `known_as` gave it.
    """
    if given := getattr(function, KNOWN_AS, ""):
        return str(given)
    code = getattr(function, "__code__", None)
    if code is None:  # a callable object: what its class does when it is called
        code = getattr(getattr(type(function), "__call__", None), "__code__", None)  # noqa: B004
    name = str(getattr(function, "__qualname__", function)).rpartition("<locals>.")[2]
    if isinstance(function, functools.partial):
        bound = repr((function.args, sorted(function.keywords.items())))
        return digest_of("partial", source_digest(function.func), _ADDRESS.sub("", bound))
    return digest_of(_ADDRESS.sub("", name), _code_digest(code) if code is not None else "")


@functools.lru_cache(maxsize=4096)
def _code_digest(code: CodeType) -> str:
    # Bytecode rather than source: there is always some, and a comment is no change.
    consts = [
        _code_digest(c)
        if isinstance(c, CodeType)
        else repr(sorted(c, key=repr) if isinstance(c, frozenset) else c)
        for c in code.co_consts
    ]
    return digest_of(code.co_code.hex(), repr(code.co_names), *consts)


def digest_of(*parts: str) -> str:
    """Return 16 hex digits that name these texts."""
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]
