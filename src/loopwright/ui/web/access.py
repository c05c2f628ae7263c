"""The door of the page: who may ask for anything at all, and what a browser may do with answers.

Rules:

1. The server listens on the loopback interface; every request names that host, whatever it asks for.
2. Every request carries the session: the token of the printed address, or the cookie it is traded
   for. The token then leaves the address, so that no history and no other page learns it.
3. A request that a browser made for another site is refused by its Origin or Sec-Fetch-Site.
4. What changes something is a POST of JSON with a header that no form can send.
5. Answers load nothing from elsewhere, run no script of the page's text, and are shown in no frame.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode

from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["CHANGE_HEADER", "HEADERS", "AccessGuard", "is_loop", "is_run_id"]

CHANGE_HEADER = "x-loopwright"
MAX_BODY = 4 << 20  # bytes of a POST
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
_RUN_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LONGEST_PATH = 2000
_KEPT = b"private, max-age=31536000, immutable"


def is_run_id(text: str) -> bool:
    """Say whether a text can be the id of a run."""
    return _RUN_ID.fullmatch(text) is not None


def is_loop(text: str) -> bool:
    """Say whether a text can be the path of a loop."""
    return 0 < len(text) <= _LONGEST_PATH and text.isprintable()


class AccessGuard:
    """The middleware that every request goes through; `token` is the secret of this server."""

    def __init__(self, app: ASGIApp, *, port: int, token: str) -> None:
        self._app = app
        self._token = token
        self.cookie = f"loopwright_{port}"
        self.session = hmac.new(token.encode(), b"session", hashlib.sha256).hexdigest()
        self._hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # there are no web sockets here
            await send({"type": "websocket.close", "code": 1008})
            return
        answer = self._answered(scope)
        # What is of this program may be kept, its address names its contents; what is of a run may not.
        own = answer is None and scope["path"].startswith("/static/")
        secured = _secured(send, _KEPT if own else b"no-store")
        if answer is not None:
            await answer(scope, receive, secured)
        else:
            await self._app(scope, receive, secured)

    def _answered(self, scope: Scope) -> Response | None:
        """Return the answer to a request that goes no further; None lets it in."""
        headers = _headers(scope)
        if headers.get("host", "") not in self._hosts:
            return _refused(421, "this page answers on the loopback address that it printed, only")
        origin = headers.get("origin")
        if origin is not None and origin.removeprefix("http://") not in self._hosts:
            return _refused(403, "another site asked for this")
        site = headers.get("sec-fetch-site", "none")
        entering = scope["method"] == "GET" and self._has_token(scope)
        if site not in ("none", "same-origin") and not (
            entering and headers.get("sec-fetch-mode") == "navigate"
        ):
            return _refused(403, "another site asked for this")
        if entering:
            return self._enter(scope)
        if not self._known(headers):
            return _refused(401, "open the address that loopwright ui printed: it has the token")
        return _method(scope["method"], headers)

    def _has_token(self, scope: Scope) -> bool:
        given = dict(parse_qsl(scope["query_string"].decode("latin-1"))).get("token", "")
        return hmac.compare_digest(given.encode(), self._token.encode())

    def _known(self, headers: dict[str, str]) -> bool:
        given = headers.get("authorization", "").removeprefix("Bearer ")
        if hmac.compare_digest(given.encode(), self._token.encode()):
            return True
        try:
            jar = SimpleCookie(headers.get("cookie", ""))
        except CookieError:
            return False
        held = jar[self.cookie].value if self.cookie in jar else ""
        return hmac.compare_digest(held.encode(), self.session.encode())

    def _enter(self, scope: Scope) -> Response:
        """Trade the token of the address for the cookie, and take it out of the address."""
        given = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        query = urlencode([(key, value) for key, value in given if key != "token"])
        path = "/" + scope["path"].lstrip("/\\")  # never the beginning of another host
        answer = RedirectResponse(f"{path}?{query}" if query else path, 303)
        answer.set_cookie(self.cookie, self.session, path="/", httponly=True, samesite="strict")
        return answer


def _headers(scope: Scope) -> dict[str, str]:
    """Return headers by name; of one given twice nothing is believed."""
    found: dict[str, str] = {}
    for raw, value in scope["headers"]:
        name = raw.decode("latin-1")
        text = value.decode("latin-1")
        if name in found:
            text = f"{found[name]}; {text}" if name == "cookie" else f"{found[name]}, {text}"
        found[name] = text
    return found


def _method(method: str, headers: dict[str, str]) -> Response | None:
    if method in ("GET", "HEAD"):
        return None
    if method != "POST":
        return _refused(405, "ask by GET, change by POST")
    if CHANGE_HEADER not in headers:
        return _refused(403, f"a change needs the header {CHANGE_HEADER}")
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return _refused(415, "a change is sent as application/json")
    length = headers.get("content-length", "")
    if not length.isdigit() or int(length) > MAX_BODY:
        return _refused(413, f"a change says how long it is, at most {MAX_BODY} bytes")
    return None


def _refused(status: int, why: str) -> Response:
    return PlainTextResponse(f"{why}\n", status)


def _secured(send: Send, kept_how: bytes) -> Send:
    """Return a `send` that puts the page's headers on every answer."""
    names = {name.encode() for name in HEADERS}
    ours = [(name.encode(), value.encode()) for name, value in HEADERS.items()]

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            theirs: Iterable[tuple[bytes, bytes]] = message["headers"]
            kept = [(name, value) for name, value in theirs if name not in names]
            if not any(name == b"cache-control" for name, _ in kept):
                found = message["status"] < 400
                kept.append((b"cache-control", kept_how if found else b"no-store"))
            message = {**message, "headers": [*kept, *ours]}
        await send(message)

    return sending
