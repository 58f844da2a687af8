"""What a page is, and how any page is served: its time is bounded, what goes wrong is a page, too.

Invariants: an error of the cluster or of the request is one line on a page with a status of its
own; any other error is ours and is raised.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from jinja2 import Environment
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from ottla.console.asked import Asked, BadRequestError
from ottla.console.rendering import placed
from ottla.console.state import Console, console_of
from ottla.model.errors import ErrorCode, OttlaError

PAGE_S = 30.0
LISTS = {
    "/topic": "/topics",
    "/message": "/messages",
    "/group": "/groups",
    "/broker": "/",
    "/transaction": "/transactions",
}
"""Where a page of one thing leads when no thing is named: to the list of them."""
NOT_FOUND = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.GROUP_ID_NOT_FOUND}


class Page(NamedTuple):
    """A template with its values."""

    template: str
    values: Mapping[str, Any]
    status: int = 200


Handler = Callable[[Console, Asked], Awaitable[Page | Response]]


def redirect(url: str) -> Response:
    """Return what sends a browser to another page of ours after a form."""
    return RedirectResponse(url, 303)


def endpoint(made_by: Environment, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    """Return what serves a page."""

    async def serve(request: Request) -> Response:
        console = console_of(request)
        console.watcher.want()
        posted = request.method == "POST"
        fields = request.state.form if posted else request.query_params.multi_items()
        if not posted and not fields and request.url.path in LISTS:
            return redirect(request.state.place + LISTS[request.url.path])
        try:
            async with asyncio.timeout(PAGE_S):
                page = await handler(console, Asked(fields))
        except BadRequestError as error:
            page = problem(400, "Invalid input", error)
        except OttlaError as error:
            page = problem(*_status(error, posted=posted), error)
        except TimeoutError:
            page = problem(504, "No response", f"the page was not ready within {PAGE_S:g} s")
        place = request.state.place
        if isinstance(page, Response):
            if page.headers.get("location", "").startswith("/"):
                page.headers["location"] = place + page.headers["location"]
            return page
        text = made_by.get_template(page.template).render(
            {
                **page.values,
                "console": console,
                "form_token": request.state.session.form_token,
                "here": request.url.path,
            }
        )
        return HTMLResponse(placed(text, place), page.status)

    return serve


def _status(error: OttlaError, *, posted: bool) -> tuple[int, str]:
    """Return the status and the title of the page of an error of the cluster."""
    if error.code in NOT_FOUND:
        return 404, "Not found"
    return 502, "The change failed" if posted else "Cannot show this page"


def problem(status: int, title: str, error: object) -> Page:
    """Return the page of what went wrong."""
    return Page("problem.html", {"title": title, "error": str(error)}, status)
