"""Live updates: parts of a page, sent again by server-sent events whenever they have changed.

Invariants: MOST_SUBSCRIBERS streams at most; each keeps only what it sent last, so a browser that
reads slowly costs nothing and gets the newest; a part is rendered by the template that made it when
the page was loaded; a stream that ends on its own is not started again.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType

from jinja2 import Environment
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from ottla.console.asked import Asked, BadRequestError
from ottla.console.changes import reassigning, transactions
from ottla.console.page import Page
from ottla.console.pages import chaos, groups, messages, overview, searching, topics
from ottla.console.rendering import placed
from ottla.console.state import Console, console_of
from ottla.model.errors import OttlaError

MOST_SUBSCRIBERS = 16
LEAST_WAIT_S = 0.2
LONGEST_WAIT_S = 1.0
EMPTY: Mapping[str, object] = MappingProxyType({})
STILL_THERE = ":\n\n"
"""A comment, so that a browser that is gone is noticed."""

Parts = Callable[[Console, Asked], Awaitable[dict[str, Page]]]
"""The parts of a page by the id of their element."""

Course = AsyncGenerator[Sequence[searching.Change], None]
"""What changes on a page until it is over."""

PARTS: dict[str, Parts] = {
    "overview": overview.parts,
    "topic": topics.parts,
    "group": groups.parts,
    "messages": messages.parts,
    "chaos": chaos.parts,
    "doctor": overview.findings,
    "reassign": reassigning.parts,
    "transactions": transactions.parts,
    "transaction": transactions.parts_of_one,
}
COURSES: dict[str, Callable[[Console, Asked], Course]] = {"search": searching.course}


class _Stream(StreamingResponse):
    """Events; what makes them is ended with the response, not when its memory is collected."""

    def __init__(self, events: AsyncGenerator[str, None]) -> None:
        super().__init__(events, media_type="text/event-stream")
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with contextlib.aclosing(self._events):
            await super().__call__(scope, receive, send)


def stream(made_by: Environment) -> Callable[[Request], Awaitable[Response]]:
    """Return what serves the stream of one page's parts."""

    async def serve(request: Request) -> Response:
        console = console_of(request)
        asked = Asked(request.query_params.multi_items())
        place = request.state.place
        try:
            of = asked.choice("of", (*PARTS, *COURSES), "overview")
            course = COURSES[of](console, asked) if of in COURSES else None
        except BadRequestError as error:
            return PlainTextResponse(f"{error}\n", 400)
        if course is not None and "last-event-id" in request.headers:
            return Response(status_code=204)  # so that a browser tries no more
        if console.subscribers >= MOST_SUBSCRIBERS:
            return PlainTextResponse(
                f"{MOST_SUBSCRIBERS} pages are already receiving updates\n", 503
            )
        if course is not None:
            return _Stream(_until_end(console, course, made_by, place))
        token = request.state.session.form_token
        return _Stream(_events(console, asked, PARTS[of], made_by, token, place))

    return serve


async def _events(
    console: Console, asked: Asked, parts: Parts, made_by: Environment, form_token: str, place: str
) -> AsyncGenerator[str, None]:
    common = {"console": console, "form_token": form_token}
    sent: dict[str, str] = {}
    console.subscribers += 1
    try:
        while not console.closing():
            console.watcher.want()
            version = console.watcher.version
            for element, page in (await _parts(console, asked, parts)).items():
                html = placed(_html(made_by, page, common), place)
                if sent.get(element) != html:
                    sent[element] = html
                    yield _event("part", element, html)
            yield STILL_THERE
            await console.watcher.wait_changed(version, LONGEST_WAIT_S)
            await asyncio.sleep(LEAST_WAIT_S)
    finally:
        console.subscribers -= 1


async def _parts(console: Console, asked: Asked, parts: Parts) -> dict[str, Page]:
    try:
        return await parts(console, asked)
    except (OttlaError, BadRequestError):
        return {}  # the page stays as it is; the next look may do better


async def _until_end(
    console: Console, course: Course, made_by: Environment, place: str
) -> AsyncGenerator[str, None]:
    """Yield events with an id, by which a browser that comes again is known, and the last one."""
    sent: dict[str, str] = {}
    console.subscribers += 1
    try:
        async with contextlib.aclosing(course):
            async for changes in course:
                for element, page, adds in changes:
                    html = placed(_html(made_by, page), place)
                    if adds or sent.get(element) != html:
                        sent[element] = html
                        yield "id: 1\n" + _event("more" if adds else "part", element, html)
                yield STILL_THERE
        yield "event: end\ndata: {}\n\n"
    finally:
        console.subscribers -= 1


def _html(made_by: Environment, page: Page, common: Mapping[str, object] = EMPTY) -> str:
    return made_by.get_template(page.template).render({**page.values, **common})


def _event(name: str, element: str, html: str) -> str:
    return f"event: {name}\ndata: {json.dumps({'id': element, 'html': html})}\n\n"
