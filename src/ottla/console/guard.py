"""The guard: every request passes it before a page is made, every response after.

Invariants: no request gets to a page without a session, under a foreign Host, or with more than
MAX_FORM_BYTES; a POST has the token of a form that was made for its session, comes from a page of
ours, and is refused where the console is read-only; every response has the headers that keep
scripts, frames and caches out; the cookie of a session is sent for paths below a secret one only
(`Session.place`), which no server of another port knows.
"""

from collections.abc import Callable, Collection
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ottla.console.sessions import PLACES, Sessions, form_is_of
from ottla.net.host_header import is_allowed

MAX_FORM_BYTES = 4_194_304
"""A record of 1 MiB in hexadecimal, and what is around it."""
MOST_FIELDS = 2000
MOST_COOKIES = 8
FORM_TYPE = "application/x-www-form-urlencoded"
TOKEN_FIELD = "form_token"  # noqa: S105  # a name, no secret  # nosec B105
LOGIN = "/login"
STATIC = "/static/"

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = (
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "same-origin"),  # without a referrer, browsers name no Origin of a form
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-store"),
)
"""No Strict-Transport-Security: it would hold for every port of the name, localhost's, too."""

ENTERED = """<!doctype html><html lang="en"><meta charset="utf-8"><title>ottla console</title>
<link rel="icon" href="data:,"><meta http-equiv="refresh" content="0;url={place}/">
<p><a href="{place}/">Continue to the console</a></p></html>
"""
NO_SESSION = """<!doctype html><html lang="en"><meta charset="utf-8"><title>ottla console</title>
<link rel="icon" href="data:,"><h1>No session</h1>
<p>Open the link that <code>ottla console</code> printed. Each link works once;
then it prints a new one.</p></html>
"""


class NotServedError(Exception):
    """A request that is not served: the status, and why in one line."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Guard:
    """An ASGI application around another one."""

    def __init__(
        self,
        app: ASGIApp,
        sessions: Sessions,
        *,
        names: Collection[str] = (),
        cookie: str = "ottla-console",
        secure: bool = False,
        read_only: bool = False,
        entered: Callable[[], None] = lambda: None,
    ) -> None:
        """`names`: host names besides localhost; `entered` is called after a link was used.

        `secure`: the page is served by https: the cookie is sent, and forms come, by it alone.
        """
        self._app = app
        self._sessions = sessions
        self._names = {name.lower() for name in names}
        self._cookie = cookie
        self._secure = secure
        self._read_only = read_only
        self._entered = entered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                ours = {name.encode() for name, _ in HEADERS}
                kept = [h for h in message.get("headers", ()) if h[0].lower() not in ours]
                message["headers"] = kept + [(n.encode(), v.encode()) for n, v in HEADERS]
            await send(message)

        try:
            response = await self._admit(scope, receive)
        except NotServedError as refused:
            response = PlainTextResponse(f"{refused}\n", refused.status)
        await (response or self._app)(scope, receive, send_with_headers)

    async def _admit(self, scope: Scope, receive: Receive) -> Response | None:
        """Return what is responded at once; None for a request that may go on to its page."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not is_allowed(hosts[0], self._names):
            raise NotServedError(
                421, "unknown Host; start the console with --allow-host NAME to allow it"
            )
        place, path = _split_place(scope["path"])
        scope["path"] = path
        state = scope.setdefault("state", {})
        state["place"] = ""
        method = scope["method"]
        if method not in ("GET", "HEAD", "POST"):
            raise NotServedError(405, "only GET, HEAD and POST are served")
        if path.startswith(STATIC) and method != "POST":
            return None
        if path == LOGIN and method == "GET":
            return self._log_in(Request(scope))
        keys = _cookies_of(headers, self._cookie)
        session = next(filter(None, (self._sessions.find(key, place) for key in keys)), None)
        if session is None:
            return HTMLResponse(NO_SESSION, 401)
        state["place"] = place
        state["session"] = session
        if method == "POST":
            if self._read_only:
                raise NotServedError(403, "the console is read-only (--read-only)")
            _check_origin(headers, hosts[0], https_only=self._secure)
            form = await _form(headers, receive)
            tokens = [value for name, value in form if name == TOKEN_FIELD]
            if len(tokens) != 1 or not form_is_of(session, tokens[0]):
                raise NotServedError(403, "the form belongs to another session; reload its page")
            state["form"] = [pair for pair in form if pair[0] != TOKEN_FIELD]
        return None

    def _log_in(self, request: Request) -> Response:
        session = self._sessions.enter(request.query_params.get("token", ""))
        if session is None:
            return HTMLResponse(NO_SESSION, 401)
        # A redirect would be of whoever linked here, and a strict cookie not sent with it.
        response = HTMLResponse(ENTERED.format(place=session.place))
        response.set_cookie(
            self._cookie,
            session.key,
            httponly=True,
            samesite="strict",
            path=session.place,
            secure=self._secure,
        )
        self._entered()
        return response


def _split_place(path: str) -> tuple[str, str]:
    """Return a session's place, empty if none is named, and the path of the page in it."""
    if not path.startswith(PLACES):
        return "", path
    name, _, page = path.removeprefix(PLACES).partition("/")
    return PLACES + name, "/" + page


def _cookies_of(headers: Headers, name: str) -> list[str]:
    """Return the values of all cookies of a name: servers of other ports may have set some."""
    pairs = (pair.partition("=") for pair in headers.get("cookie", "").split(";"))
    return [value.strip() for key, _, value in pairs if key.strip() == name][:MOST_COOKIES]


def _check_origin(headers: Headers, host: str, *, https_only: bool) -> None:
    """Refuse forms of other sites. Without https_only https is right, too: a proxy may speak it."""
    origin = headers.get("origin")
    if origin is not None:
        try:
            page = urlsplit(origin)
        except ValueError:  # as of http://[
            raise NotServedError(403, "the form was sent by another site") from None
        foreign = page.netloc.lower() != host.lower()
        if foreign or (https_only and page.scheme != "https"):
            raise NotServedError(403, "the form was sent by another site")
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise NotServedError(403, "the form was sent by another site")


async def _form(headers: Headers, receive: Receive) -> list[tuple[str, str]]:
    if headers.get("content-type", "").partition(";")[0].strip().lower() != FORM_TYPE:
        raise NotServedError(415, f"the Content-Type of a form must be {FORM_TYPE}")
    too_large = NotServedError(413, f"the form is larger than {MAX_FORM_BYTES:,} bytes")
    length = headers.get("content-length", "")
    if length.isdigit() and int(length) > MAX_FORM_BYTES:
        raise too_large
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise NotServedError(400, "the connection closed while the form was being sent")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > MAX_FORM_BYTES:
            raise too_large
        if not message.get("more_body"):
            break
    try:
        text = b"".join(parts).decode("ascii")
        return parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict")
    except ValueError:
        raise NotServedError(400, "not a valid form, or too many fields") from None
