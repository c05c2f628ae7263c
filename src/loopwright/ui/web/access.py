"""Access control of the page, and of the servers that programs call.

Rules:

1. The server listens on the loopback interface, and every request must name that host.
2. Every request needs the token of the printed address, or the cookie that replaces it. A redirect
   removes the token from the address, so that it stays out of the history and of referrers.
3. A request from another site is refused by its Origin or Sec-Fetch-Site.
4. A change is a POST of JSON with a header that forms cannot send; for a server that programs call, that is the
   header with the token, and a POST without a body is one too.
5. Pages load nothing from other hosts, run no inline script, and are not shown in frames.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...errors import ConfigurationError, LoopwrightError
from ...records import codec
from ...records.codec import Json

CHANGE_HEADER = "x-loopwright"
MAX_BODY = 4 << 20  # bytes of a POST: an edited output may be long
# Outputs of models are shown on the page, so the browser must run nothing that is in them (rule 5).
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
# The ID becomes a part of paths and file names.
_RUN_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MAX_PATH = 2000
_CACHEABLE = b"private, max-age=31536000, immutable"


def is_run_id(text: str) -> bool:
    """Return whether a text can be a run ID."""
    return _RUN_ID.fullmatch(text) is not None


def is_loop(text: str) -> bool:
    """Return whether a text can be the path of a loop."""
    return 0 < len(text) <= _MAX_PATH and text.isprintable()


async def json_object(request: Request) -> dict[str, Json]:
    """Return the JSON object in the body of a request; an empty body is an empty one. Raises ConfigurationError."""
    raw = bytearray()
    async for part in request.stream():
        raw += part
        if len(raw) > MAX_BODY:
            raise ConfigurationError(f"the request is longer than {MAX_BODY} bytes")
    try:
        fields = codec.decode(bytes(raw).decode() or "{}")
    except (ValueError, RecursionError, LoopwrightError):
        raise ConfigurationError("the request is not JSON") from None
    if not isinstance(fields, dict):
        raise ConfigurationError("the request is not a JSON object")
    return fields


class AccessGuard:
    """The middleware for all requests.

    Args:
        app: the application behind it.
        port: the port of the server.
        token: the secret of this server.
        program: the command that started it, for sentences. Default: that of the page.
        changing: the methods of a change, for a server that programs call; with its cookie alone, nothing changes,
            and its refusals are JSON.
        any_host: whether it listens on other interfaces, and may be called by any name.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        port: int,
        token: str,
        program: str = "loopwright ui",
        changing: tuple[str, ...] = (),
        any_host: bool = False,
    ) -> None:
        self._app = app
        self._token = token
        self._program = program
        self._changing = changing
        self._any_host = any_host
        # Cookies do not depend on the port, and several pages may be open.
        self.cookie = f"loopwright_{port}"
        # Derived, so that the cookie does not disclose the token of the address.
        self.session = hmac.new(token.encode(), b"session", hashlib.sha256).hexdigest()
        self._hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # the page has no web sockets
            await send({"type": "websocket.close", "code": 1008})
            return
        answer = self._answered(scope)
        # Static files may be cached, because their address contains a digest; runs may not.
        own = answer is None and scope["path"].startswith("/static/")
        secured = _secured(send, _CACHEABLE if own else b"no-store")
        if answer is not None:
            await answer(scope, receive, secured)
        else:
            await self._app(scope, receive, secured)

    def _answered(self, scope: Scope) -> Response | None:
        """Return the response to a refused request, or None to accept it."""
        headers = _headers(scope)
        # Another site may let its own name resolve to this machine (DNS rebinding).
        if headers.get("host", "") not in self._hosts and not self._any_host:
            return self._refused(421, f"use the loopback address that {self._program} printed")
        origin = headers.get("origin")
        if origin is not None and origin.removeprefix("http://") not in self._hosts:
            return self._refused(403, "this request came from another site")
        site = headers.get("sec-fetch-site", "none")
        # A link in a terminal or a chat is a cross-site navigation; with the token it is allowed.
        query = scope["query_string"].decode("latin-1")
        given = dict(parse_qsl(query)).get("token", "")
        # In constant time, so that the time of an answer does not reveal the beginning of the token.
        has_token = hmac.compare_digest(given.encode(), self._token.encode())
        entering = scope["method"] == "GET" and has_token
        if site not in ("none", "same-origin") and not (
            entering and headers.get("sec-fetch-mode") == "navigate"
        ):
            return self._refused(403, "this request came from another site")
        if entering:
            # Set the cookie, and redirect to the address without the token.
            kept = parse_qsl(query, keep_blank_values=True)
            query = urlencode([(key, value) for key, value in kept if key != "token"])
            path = "/" + scope["path"].lstrip("/\\")  # never the beginning of another host
            answer = RedirectResponse(f"{path}?{query}" if query else path, 303)
            answer.set_cookie(self.cookie, self.session, path="/", httponly=True, samesite="strict")
            return answer
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        by_program = hmac.compare_digest(bearer.encode(), self._token.encode())
        if not by_program and self._changing:
            if scope["method"] != "GET" or not self._has_session(headers):
                why = f"send the header Authorization: Bearer TOKEN; {self._program} printed the file of the token"
                return self._refused(401, why)
        elif not by_program and not self._has_session(headers):
            return self._refused(
                401, f"open the address that {self._program} printed; it contains the token"
            )
        return self._method(scope["method"], headers)

    def _has_session(self, headers: dict[str, str]) -> bool:
        try:
            jar = SimpleCookie(headers.get("cookie", ""))
        except CookieError:
            return False
        session = jar[self.cookie].value if self.cookie in jar else ""
        return hmac.compare_digest(session.encode(), self.session.encode())

    def _method(self, method: str, headers: dict[str, str]) -> Response | None:
        if method in ("GET", "HEAD", *(one for one in self._changing if one != "POST")):
            return None
        if method != "POST":
            return self._refused(405, "use GET to read and POST to change")
        # Browsers let no form set a header, and ask before a script of another site may.
        if CHANGE_HEADER not in headers and not self._changing:
            return self._refused(403, f"a change needs the header {CHANGE_HEADER}")
        length = headers.get("content-length", "")
        # A request with neither header has no body, and what is not there has no type.
        if self._changing and length in ("", "0") and "transfer-encoding" not in headers:
            return None
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return self._refused(415, "a change must be sent as application/json")
        # Without a length, a body could be sent that never ends.
        if not length.isdigit() or int(length) > MAX_BODY:
            return self._refused(
                413, f"a change needs a content-length of at most {MAX_BODY} bytes"
            )
        return None

    def _refused(self, status: int, why: str) -> Response:
        if self._changing:  # a program reads it
            return JSONResponse({"error": why}, status)
        return PlainTextResponse(f"{why}\n", status)


def _headers(scope: Scope) -> dict[str, str]:
    """Return headers by name; repeated headers are joined, so that they match no check."""
    headers: dict[str, str] = {}
    for raw, value in scope["headers"]:
        name = raw.decode("latin-1")
        text = value.decode("latin-1")
        if name in headers:
            text = f"{headers[name]}; {text}" if name == "cookie" else f"{headers[name]}, {text}"
        headers[name] = text
    return headers


def _secured(send: Send, caching: bytes) -> Send:
    """Return a `send` that adds the page's headers to every response."""
    names = {name.encode() for name in HEADERS}
    ours = [(name.encode(), value.encode()) for name, value in HEADERS.items()]

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            original: Iterable[tuple[bytes, bytes]] = message["headers"]
            # Headers of the framework must not weaken ours.
            others = [(name, value) for name, value in original if name not in names]
            if not any(name == b"cache-control" for name, _ in others):
                headers = message["status"] < 400
                others.append((b"cache-control", caching if headers else b"no-store"))
            message = {**message, "headers": [*others, *ours]}
        await send(message)

    return sending
