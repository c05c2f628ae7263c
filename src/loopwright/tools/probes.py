"""Looks at the answer of a URL, for a wait. A command is looked at by a `shell` step; see `ShellStep.look`."""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from http.client import HTTPException
from typing import IO, Literal
from urllib.parse import urlsplit

from ..engine.context import Context
from ..engine.step import digest_of
from ..engine.waiting import Probed
from ..errors import ConfigurationError, nearest
from ..records.codec import Json

__all__ = ["SameHost", "UrlProbe"]

LARGEST = 1 << 20  # bytes of an answer
TIMEOUT = 30.0  # seconds for an answer


@dataclass(frozen=True)
class UrlProbe:
    """The answer of a URL as the condition of a wait: a GET without credentials.

    Args:
        url: the URL. A redirect to another host is not followed.
        status: the status that the answer must have. Default: any of 200 to 299.
        pattern: a regular expression that must match somewhere in its first MiB.
        state: `there`, or `changed`: the answer differs from that at the beginning of the wait.

    Raises:
        ConfigurationError: for a URL, status, pattern or state that is not valid.

    Example:
        >>> UrlProbe("https://example.org/build", pattern="passed").words
        'https://example.org/build to answer with passed'
    """

    url: str
    status: int | None = None
    pattern: str = ""
    state: Literal["there", "changed"] = "there"

    def __post_init__(self) -> None:
        parts = urlsplit(self.url) if isinstance(self.url, str) else None
        if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigurationError(f"url: {self.url!r:.120} is not a URL with http or https")
        if "@" in parts.netloc:
            raise ConfigurationError(
                f"url: a URL with credentials is not allowed: {parts.hostname}"
            )
        if self.status is not None and not 100 <= self.status <= 599:
            raise ConfigurationError(f"url: status: {self.status} is not a status from 100 to 599")
        if self.state not in ("there", "changed"):
            hint = nearest(self.state, ("there", "changed"))
            raise ConfigurationError(f"url: is: {self.state!r} is not there or changed{hint}")
        try:
            re.compile(self.pattern)
        except re.error as error:
            raise ConfigurationError(
                f"url: pattern: {self.pattern!r:.80} is not a regular expression: {error}"
            ) from None

    @property
    def words(self) -> str:
        """What is looked at."""
        if self.changes:
            return f"{self.url} to change"
        status = f" {self.status}" if self.status else ""
        return f"{self.url} to answer{status}{f' with {self.pattern}' if self.pattern else ''}"

    @cached_property
    def fingerprint(self) -> str:
        """The identity of the condition for replays."""
        return digest_of("url", self.url, str(self.status), self.pattern, self.state)

    @property
    def changes(self) -> bool:
        """Whether it is true when the answer differs from the first one."""
        return self.state == "changed"

    async def look(self, ctx: Context, before: str) -> Probed:
        """Look once. A server that does not answer is not yet there."""
        if ctx.run.stubs is not None:
            return Probed(True, ctx.run.stubs.output(ctx.path, "URL"))
        status, body = await asyncio.to_thread(self._get)
        text = body.decode("utf-8", "replace")
        right = status == self.status if self.status else 200 <= status <= 299
        digest = hashlib.sha256(b"%d %s" % (status, body)).hexdigest() if status else ""
        true = right and re.search(self.pattern, text) is not None
        value: Mapping[str, Json] = {"status": status, "output": text[-8192:]}
        return Probed(true and (not self.changes or digest != before), dict(value), digest=digest)

    def _get(self) -> tuple[int, bytes]:
        """Return the status and the body of the answer; status 0 for none."""
        host = urlsplit(self.url).netloc
        opener = urllib.request.build_opener(SameHost(host))
        request = urllib.request.Request(self.url, headers={"user-agent": "loopwright"})  # noqa: S310 - as checked
        end, body = time.monotonic() + TIMEOUT, b""
        try:
            try:
                answer = opener.open(request, timeout=TIMEOUT)
            except urllib.error.HTTPError as error:
                answer = error
            with answer:
                # In parts, because the time limit of the socket is one for each of them.
                while len(body) < LARGEST and (part := answer.read1(LARGEST - len(body))):
                    body += part
                    if time.monotonic() > end:
                        return 0, b""
                return answer.status, body
        except (OSError, ValueError, HTTPException):
            return 0, b""


class SameHost(urllib.request.HTTPRedirectHandler):
    """Follows redirects to a host only; without one it follows none."""

    def __init__(self, host: str = "") -> None:
        self._host = host

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: object,
        newurl: str,
    ) -> urllib.request.Request | None:
        if not self._host or urlsplit(newurl).netloc != self._host:
            return None
        return super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]
