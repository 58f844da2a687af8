"""The application: which page is where, behind the guard."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from ottla.console.changes import (
    acls,
    faults,
    group_offsets,
    new_topic,
    probing,
    reassigning,
    setting,
    transactions,
    users,
)
from ottla.console.guard import Guard
from ottla.console.live import stream
from ottla.console.page import Handler, endpoint
from ottla.console.pages import (
    brokers,
    chaos,
    groups,
    messages,
    overview,
    producing,
    settings,
    topics,
    whatif,
    why,
)
from ottla.console.rendering import environment, placed
from ottla.console.state import Console

GETS: dict[str, Handler] = {
    "/": overview.page,
    "/topics": topics.listed,
    "/topic": topics.one,
    "/messages": messages.page,
    "/message": messages.one,
    "/produce": producing.page,
    "/groups": groups.listed,
    "/group": groups.one,
    "/broker": brokers.one,
    "/settings": settings.page,
    "/transactions": transactions.listed,
    "/transaction": transactions.one,
    "/reassign": reassigning.page,
    "/acls": acls.listed,
    "/users": users.listed,
    "/doctor": overview.doctor,
    "/whatif": whatif.page,
    "/why": why.page,
    "/chaos": chaos.page,
}
POSTS: dict[str, Handler] = {
    "/topics/create": new_topic.create,
    "/produce": producing.write,
    "/settings/alter": setting.alter,
    "/group/reset": group_offsets.reset,
    "/reassign/plan": reassigning.plan,
    "/reassign/execute": reassigning.execute,
    "/reassign/cancel": reassigning.cancel,
    "/reassign/throttles": reassigning.remove_throttles,
    "/transactions/abort": transactions.abort,
    "/acls/change": acls.change,
    "/users/put": users.put,
    "/users/remove": users.remove,
    "/chaos/do": faults.do,
    "/chaos/probe": probing.probe,
    "/leave": overview.leave,
}


def application(
    console: Console,
    *,
    names: Collection[str] = (),
    cookie: str = "ottla-console",
    secure: bool = False,
    entered: Callable[[], None] = lambda: None,
    started: Callable[[], None] = lambda: None,
) -> ASGIApp:
    """Return the application of a console; `names` to `entered` are the guard's.

    `started` is called when a server has begun to serve it.
    """
    made_by = environment()

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        watching = asyncio.create_task(console.watcher.run())
        try:
            started()
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await console.diagnosing.stop()
            await console.snapshots.stop()
            await console.probe.stop()
            await console.chaos.stop()

    async def not_found(request: Request, _error: Exception) -> Response:
        session = getattr(request.state, "session", None)  # files are given without one
        text = made_by.get_template("problem.html").render(
            title="Not found",
            error="this page does not exist; use the links above",
            form_token="" if session is None else session.form_token,
            console=console,
            here="",
        )
        return HTMLResponse(placed(text, request.state.place), 404)

    app = Starlette(
        routes=[
            Route("/static/timeline.css", why.style),
            Route("/static/timeline.js", why.script),
            Mount("/static", StaticFiles(packages=[("ottla.console", "static")])),
            Route("/live", stream(made_by)),
            *(Route(at, endpoint(made_by, page), methods=["GET"]) for at, page in GETS.items()),
            *(Route(at, endpoint(made_by, page), methods=["POST"]) for at, page in POSTS.items()),
        ],
        lifespan=lifespan,
        exception_handlers={404: not_found},
    )
    app.state.console = console
    return Guard(
        app,
        console.sessions,
        names=names,
        cookie=cookie,
        secure=secure,
        read_only=console.read_only,
        entered=entered,
    )
