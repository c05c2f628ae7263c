"""Who is let in: every route, whatever it is asked for by whom it should not answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from starlette.routing import Mount, Route

from loopwright.journal import MemoryJournal
from loopwright.ui.web.access import HEADERS, is_loop, is_run_id
from loopwright.ui.web.app import create_app
from loopwright.ui.web.render import static_path

PORT, TOKEN = 8123, "t" * 43
HOST = f"127.0.0.1:{PORT}"
APP = create_app(MemoryJournal(), url="memory:", folder=Path(), port=PORT, token=TOKEN)
RIGHT = {"authorization": f"Bearer {TOKEN}", "host": HOST}
CHANGE = {"content-type": "application/json", "x-loopwright": "1"}


def routes() -> list[tuple[str, str]]:
    """Return every route's method and a path of it, and some that are none."""
    found = [("GET", f"{static_path()}/{name}") for name in ("page.js", "favicon.svg")]
    found.append(("GET", "/nowhere"))
    for route in APP.routes:
        if isinstance(route, Route):
            path = route.path.replace("{run_id}", "some-run").replace("{form}", "json")
            found += [(method, path) for method in sorted(route.methods or ()) if method != "HEAD"]
        else:
            assert isinstance(route, Mount)
    return found


ROUTES = routes()
FORM = {"content-type": "application/x-www-form-urlencoded"}
WRONG: dict[str, tuple[dict[str, str], int]] = {
    "no token": ({"host": HOST}, 401),
    "wrong token": ({"host": HOST, "authorization": f"Bearer {'u' * 43}"}, 401),
    "wrong cookie": ({"host": HOST, "cookie": f"loopwright_{PORT}={TOKEN}"}, 401),
    "bad host": ({**RIGHT, "host": f"evil.example:{PORT}"}, 421),
    "bad host port": ({**RIGHT, "host": "127.0.0.1:9"}, 421),
    "bad origin": ({**RIGHT, "origin": "http://evil.example"}, 403),
    "null origin": ({**RIGHT, "origin": "null"}, 403),
    "another port's origin": ({**RIGHT, "origin": "http://127.0.0.1:9"}, 403),
    "https origin": ({**RIGHT, "origin": f"https://{HOST}"}, 403),
    "another site": ({**RIGHT, "sec-fetch-site": "cross-site"}, 403),
    "another port": ({**RIGHT, "sec-fetch-site": "same-site"}, 403),
}


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    """A client of the page that may be anyone."""
    transport = httpx.ASGITransport(APP)
    async with httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}") as made:
        yield made


@pytest.mark.parametrize("name", WRONG)
async def test_no_route_answers_whom_it_should_not(client: httpx.AsyncClient, name: str) -> None:
    """Every route, the streams and the static files too, refuses every wrong request."""
    headers, status = WRONG[name]
    assert len(ROUTES) >= 20
    for method, path in ROUTES:
        extra = CHANGE if method == "POST" else {}
        answer = await client.request(
            method, path, headers={**headers, **extra}, content="{}" if extra else None
        )
        assert (path, answer.status_code) == (path, status)
        assert answer.headers["content-security-policy"] == HEADERS["content-security-policy"]
        assert TOKEN not in answer.text


async def test_a_simple_form_changes_nothing(client: httpx.AsyncClient) -> None:
    """A POST that a form of another page could send is refused on every route, for each part it lacks."""
    cases = [
        (FORM, 403), ({"content-type": "text/plain"}, 403), ({**FORM, "x-loopwright": "1"}, 415),
        ({"content-type": "application/json"}, 403),
    ]  # fmt: skip
    for _, path in ROUTES:
        for headers, status in cases:
            answer = await client.post(path, headers={**RIGHT, **headers}, content="a=b")
            assert (path, answer.status_code) == (path, status)


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
async def test_other_methods_do_nothing(client: httpx.AsyncClient, method: str) -> None:
    """There is GET to ask and POST to change, and no answer to a preflight."""
    for _, path in ROUTES:
        answer = await client.request(method, path, headers=RIGHT)
        assert answer.status_code == 405
        assert "access-control-allow-origin" not in answer.headers


async def test_the_token_is_traded_for_a_cookie(client: httpx.AsyncClient) -> None:
    """The token leaves the address at once; the cookie is for this server and no script's."""
    answer = await client.get(f"/?token={TOKEN}&status=failed", headers={"host": HOST})
    assert (answer.status_code, answer.headers["location"]) == (303, "/?status=failed")
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"loopwright_{PORT}=")
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert TOKEN not in cookie
    value = cookie.partition(";")[0]
    assert (await client.get("/", headers={"host": HOST, "cookie": value})).status_code == 200
    away = await client.get(f"http://{HOST}//evil.example/?token={TOKEN}", headers={"host": HOST})
    assert away.headers["location"].startswith("/evil.example")
    client.cookies.clear()


@pytest.mark.parametrize(
    "path",
    [
        "/runs/..%2f..%2fetc", "/runs/a%00b", "/runs/" + "a" * 65, "/runs/a'b", "/runs/ü",
        "/static/../app.py", "/static/%2e%2e/app.py", "/runs/x/export/exe",
        "/runs/x/iteration?loop=%00&number=1", "/runs/x/iteration?loop=a&number=-1",
        "/?status=nothing", "/?reason=nothing", "/?before=x", "/runs/x/rows?loop=a&limit=9999",
    ],
)  # fmt: skip
async def test_what_is_no_id_is_refused(client: httpx.AsyncClient, path: str) -> None:
    """Ids, loops, numbers and words are checked before any path or query is made of them."""
    answer = await client.get(path, headers=RIGHT)
    assert answer.status_code in (400, 404)


def test_ids_are_checked_whole() -> None:
    """What may stand in an address is a short alphabet, to its very end."""
    assert all(map(is_run_id, ("a", "20261121-031043-p94uo6", "_" * 64)))
    assert not any(map(is_run_id, ("", "a\n", "a/b", "a.b", "é", "a" * 65)))
    assert is_loop("outer/2/execute")
    assert not any(map(is_loop, ("", "a\nb", "a" * 2001)))


async def test_a_body_has_a_bound(client: httpx.AsyncClient) -> None:
    """What is too long is refused before it is read."""
    answer = await client.post(
        "/start", headers={**RIGHT, **CHANGE}, content=b'{"input":"' + b"x" * (5 << 20) + b'"}'
    )
    assert answer.status_code == 413
    for wrong in ("[1]", "{", '{"a":NaN}', '"x"'):
        answer = await client.post("/start", headers={**RIGHT, **CHANGE}, content=wrong)
        assert (wrong, answer.status_code) == (wrong, 400)


async def test_what_is_static_is_kept_and_nothing_of_a_run_is(client: httpx.AsyncClient) -> None:
    """A file's address names its contents and is kept for good; a page, or a file that is not there,
    is kept nowhere."""
    for path, kept in (
        (f"{static_path()}/page.js", "private, max-age=31536000, immutable"),
        (f"{static_path()}/none.js", "no-store"),
        ("/static/0123456789ab/page.js", "no-store"),
        ("/", "no-store"),
    ):
        answer = await client.get(path, headers=RIGHT)
        assert (path, answer.headers["cache-control"]) == (path, kept)
