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
