"""Error texts as executions keep them: without addresses, keys and other strings that name someone.

The three rules of the format (e-mail, IPv4, runs of 20 letters and digits) hold in their order; IPv6
addresses and keys with hyphens, underscores or dots in them are replaced as well.
"""

from __future__ import annotations

import re
from ipaddress import IPv6Address

__all__ = ["LONGEST", "sanitised"]

LONGEST = 500  # characters

_EMAIL = re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+")
_IPV4 = re.compile(r"(?<![0-9.])(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![0-9]|\.[0-9])")
_IPV6 = re.compile(r"(?<![0-9A-Za-z:.])[0-9A-Fa-f:.]{2,}(?:%\w+)?")
_KEY = re.compile(r"[A-Za-z0-9]+(?:[-_.+/=][A-Za-z0-9]+)*")
_RUN = re.compile(r"[A-Za-z0-9]{20,}")
_LEAST = 20


def sanitised(text: str, *, longest: int = LONGEST) -> str:
    """Return an error text with `[EMAIL]`, `[IP]` and `[TOKEN]` for what should not be kept, cut to
    `longest` characters.

    >>> sanitised("ann@example.org from 10.0.0.1 sent sk-proj-4f9a8b7c6d5e4f3a2b1c")
    '[EMAIL] from [IP] sent [TOKEN]'
    """
    text = _EMAIL.sub("[EMAIL]", text)
    text = _IPV4.sub("[IP]", text)
    text = _IPV6.sub(_address, text)
    text = _KEY.sub(_key, text)
    return _RUN.sub("[TOKEN]", text)[:longest]


def _address(found: re.Match[str]) -> str:
    try:
        IPv6Address(found[0].rstrip(".").partition("%")[0])
    except ValueError:
        return found[0]
    return "[IP]" + "." * found[0].endswith(".")


def _key(found: re.Match[str]) -> str:
    """Return what stands for a long word with separators: a key has digits in several of its parts,
    or one in a part that has letters too; a path or a sentence with hyphens has not."""
    word = found[0]
    parts = re.split(r"[-_.+/=]", word)
    if len(parts) < 2 or len(word) < _LEAST:
        return word
    mixed = [p for p in parts if re.search(r"[0-9]", p) and re.search(r"[A-Za-z]", p)]
    digits = sum(len(part) for part in mixed)
    return "[TOKEN]" if digits >= 8 and max(len(part) for part in mixed) >= 4 else word
