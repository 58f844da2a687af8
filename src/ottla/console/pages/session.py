"""The end of a session."""

from starlette.responses import HTMLResponse, Response

from ottla.console.asked import Asked
from ottla.console.state import Console

LEFT = """<!doctype html><html lang="en"><meta charset="utf-8"><title>ottla console</title>
<link rel="icon" href="data:,"><h1>All sessions ended</h1>
<p>To open the console again, use the link that
<code>ottla console</code> printed last.</p></html>
"""


async def leave(console: Console, _asked: Asked) -> Response:
    """Sign out everywhere: whoever is still to look gets in by the next link."""
    console.sessions.leave_all()
    return HTMLResponse(LEFT)
