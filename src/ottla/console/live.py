"""Live updates: parts of a page, sent again by server-sent events whenever they have changed.

Who may call: `application`. Invariants: MOST_SUBSCRIBERS streams at most; each keeps only what it
sent last, so a browser that reads slowly costs nothing and gets the newest; a part is rendered by
the template that made it when the page was loaded.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable

from jinja2 import Environment
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from ottla.console.asked import Asked, BadRequestError
from ottla.console.page import Page
from ottla.console.pages import chaos, groups, messages, overview, topics
from ottla.console.state import Console, console_of
from ottla.model.errors import OttlaError

MOST_SUBSCRIBERS = 16
LEAST_WAIT_S = 0.2
LONGEST_WAIT_S = 1.0

Parts = Callable[[Console, Asked], Awaitable[dict[str, Page]]]
"""The parts of a page by the id of their element."""

PARTS: dict[str, Parts] = {
    "overview": overview.parts,
    "topic": topics.parts,
    "group": groups.parts,
    "messages": messages.parts,
    "chaos": chaos.parts,
}


def stream(made_by: Environment) -> Callable[[Request], Awaitable[Response]]:
    """Return what serves the stream of one page's parts."""

    async def serve(request: Request) -> Response:
        console = console_of(request)
        asked = Asked(request.query_params.multi_items())
        try:
            parts = PARTS[asked.choice("of", PARTS, "overview")]
        except BadRequestError as error:
            return PlainTextResponse(f"{error}\n", 400)
        if console.subscribers >= MOST_SUBSCRIBERS:
            return PlainTextResponse(f"{MOST_SUBSCRIBERS} pages are being updated already\n", 503)
        return StreamingResponse(
            _events(console, asked, parts, made_by), media_type="text/event-stream"
        )

    return serve


async def _events(
    console: Console, asked: Asked, parts: Parts, made_by: Environment
) -> AsyncIterator[str]:
    sent: dict[str, str] = {}
    console.subscribers += 1
    try:
        while not console.closing():
            console.watcher.want()
            version = console.watcher.version
            for element, page in (await _parts(console, asked, parts)).items():
                html = made_by.get_template(page.template).render(page.values)
                if sent.get(element) != html:
                    sent[element] = html
                    yield f"event: part\ndata: {json.dumps({'id': element, 'html': html})}\n\n"
            yield ":\n\n"  # so that a browser that is gone is noticed
            await console.watcher.wait_changed(version, LONGEST_WAIT_S)
            await asyncio.sleep(LEAST_WAIT_S)
    finally:
        console.subscribers -= 1


async def _parts(console: Console, asked: Asked, parts: Parts) -> dict[str, Page]:
    try:
        return await parts(console, asked)
    except (OttlaError, BadRequestError):
        return {}  # the page stays as it is; the next look may do better
