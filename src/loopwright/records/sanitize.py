"""Error texts as they are recorded: without addresses, keys and passwords.

Every recorded error passes `cleaned`: the failure of an effect, the error of an iteration, the detail of
a result. The errors in an agent's execution pass `sanitised`, which adds the rules of that format.
"""

from __future__ import annotations

import re
from ipaddress import IPv6Address, ip_address

LONGEST = 500  # characters of an error in an execution

_NAMES = r"password|passwd|passphrase|pwd|secret|api[-_ ]?key|access[-_ ]?key|private[-_ ]?key"
_VALUE = r"(?:\"[^\"\n]{0,400}\"|'[^'\n]{0,400}'|[^\s,;&\"'<>(){}\[\]]+)"
# With a colon `token` is a common word of error messages, so only `=` and JSON mark its value.
_ASSIGNED = re.compile(
    rf"(?P<name>(?:{_NAMES})[\"']?[ \t]{{0,2}}(?:=|:(?!//))[ \t]{{0,2}}"
    rf"|token(?:=|[\"'][ \t]{{0,2}}:[ \t]{{0,2}}))(?P<value>{_VALUE})",
    re.IGNORECASE,
)
_HEADER = re.compile(
    r"(?P<name>authorization[\"']?[ \t]{0,2}[:=][ \t]{0,2}[\"']?(?:bearer|basic|token)[ \t]{1,2})"
    r"(?P<value>[^\s,;\"']+)",
    re.IGNORECASE,
)
# The user part starts at the beginning of a word; otherwise the search restarts at each character.
_LOGIN = re.compile(
    r"(?<![A-Za-z0-9._%+~-])[A-Za-z0-9._%+~-]{1,128}:[^\s:@/\"'<>]{1,256}@(?=[A-Za-z0-9\[])"
)
_URL_LOGIN = re.compile(r"(?<=://)[^\s/\"'<>]{1,512}@(?=[A-Za-z0-9\[])")
_EMAIL = re.compile(r"(?<![A-Za-z0-9._%+-])[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+")
_IPV4 = re.compile(r"(?<![0-9.])(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![0-9]|\.[0-9])")
_IPV6 = re.compile(r"(?<![0-9A-Za-z:.])[0-9A-Fa-f:.]{2,}(?:%\w+)?")
_KEY = re.compile(r"[A-Za-z0-9]+(?:[-_.+/=][A-Za-z0-9]+)*")
_RUN = re.compile(r"[A-Za-z0-9]{20,}")
# The prefix of a provider marks a key that has letters only.
_PREFIXED = re.compile(
    r"\b(?:sk|pk|rk|ghp|gho|ghs|github_pat|xox[abps]|glpat|hf|gsk)(?:[-_][A-Za-z0-9]{1,12}){0,3}[-_][A-Za-z0-9]{16,}(?:[-_][A-Za-z0-9]+)*"
)
_MIN_KEY = 20  # characters; shorter words are names and numbers


def cleaned(text: str) -> str:
    """Return an error text with `[EMAIL]`, `[IP]`, `[TOKEN]` and `[SECRET]` in place of private values.

    Loopback addresses stay, and long words without a digit that do not begin as a key of a provider.

    >>> cleaned("login failed: postgres://ann:hunter2@db.example.org password=x for ann@example.org")
    'login failed: postgres://[SECRET]@db.example.org password=[SECRET] for [EMAIL]'
    """
    text = _HEADER.sub(r"\g<name>[SECRET]", text)
    text = _ASSIGNED.sub(_masked, text)
    # Logins before addresses: user:password@host contains the form of an e-mail address.
    if "@" in text:
        text = _URL_LOGIN.sub("[SECRET]@", text)
        text = _LOGIN.sub("[SECRET]@", text)
        text = _EMAIL.sub("[EMAIL]", text)
    text = _IPV4.sub(_foreign, text)
    text = _IPV6.sub(_foreign, text)
    text = _PREFIXED.sub("[TOKEN]", text)
    text = _KEY.sub(_redacted_key, text)
    return _RUN.sub(_mixed, text)


def sanitised(text: str, *, longest: int = LONGEST) -> str:
    """Return an error text by the rules of an agent's execution.

    It is `cleaned`, has no address and no sequence of 20 letters and digits, and has at most `longest`
    characters.

    >>> sanitised("ann@example.org from 10.0.0.1 sent sk-proj-4f9a8b7c6d5e4f3a2b1c")
    '[EMAIL] from [IP] sent [TOKEN]'
    """
    text = _IPV4.sub("[IP]", cleaned(text))
    text = _IPV6.sub(_address, text)
    return _RUN.sub("[TOKEN]", text)[:longest]


def _masked(match: re.Match[str]) -> str:
    value = match["value"]
    quote = value[0] if value[0] in "\"'" else ""
    return f"{match['name']}{quote}[SECRET]{quote}"


def _foreign(match: re.Match[str]) -> str:
    """Return `[IP]` for an address of another machine."""
    text = match[0]
    end = "." * text.endswith(".")
    try:
        one = ip_address(text.rstrip(".").partition("%")[0])
    except ValueError:  # 999.1.1.1 has the form of an address, a word with colons has not
        return "[IP]" if _IPV4.fullmatch(text) else text
    return text if one.is_loopback or one.is_unspecified else "[IP]" + end


def _address(match: re.Match[str]) -> str:
    try:
        IPv6Address(match[0].rstrip(".").partition("%")[0])
    except ValueError:
        return match[0]
    return "[IP]" + "." * match[0].endswith(".")


def _redacted_key(match: re.Match[str]) -> str:
    """Return `[TOKEN]` for a long word with separators that mixes letters and digits, as keys do.

    Paths and hyphenated words have few such parts.
    """
    word = match[0]
    if len(word) < _MIN_KEY:
        return word
    parts = re.split(r"[-_.+/=]", word)
    if len(parts) < 2:
        return word
    mixed = [p for p in parts if re.search(r"[0-9]", p) and re.search(r"[A-Za-z]", p)]
    digits = sum(len(part) for part in mixed)
    return "[TOKEN]" if digits >= 8 and max(len(part) for part in mixed) >= 4 else word


def _mixed(match: re.Match[str]) -> str:
    word = match[0]
    letters = sum(character.isalpha() for character in word)
    # Keys mix letters and digits; a word or a number of this length does not.
    return "[TOKEN]" if 2 <= letters <= len(word) - 2 else word
