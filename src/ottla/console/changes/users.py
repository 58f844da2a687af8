"""Users with SCRAM passwords: listed, given a password, removed.

Who may call: `application`. Invariants: a password is on no page and in no line; it is sent to a
broker and forgotten. A removal is shown first.
"""

from starlette.responses import Response

from ottla.admin.operations import scram_users
from ottla.admin.operations.scram_users import MAX_PASSWORD_BYTES, parse_password
from ottla.console.asked import Asked, BadRequestError
from ottla.console.changes.preview import Preview, preview
from ottla.console.page import Page, redirect
from ottla.console.rendering import paged
from ottla.console.state import Console
from ottla.security.sasl.scram import BY_NAME

PAGE_ROWS = 100
BACK = "/users"
ITERATIONS = 8192


async def listed(console: Console, asked: Asked) -> Page:
    """Return a page of the users."""
    found = await scram_users.describe(console.client)
    shown, pages = paged(found, asked.number("page", 1, 1, 1 << 31), PAGE_ROWS)
    values = {"rows": shown, "pages": pages, "mechanisms": list(BY_NAME)}
    return Page("users.html", {"title": "Users", **values})


async def put(console: Console, asked: Asked) -> Response:
    """Give a user a password that was typed twice."""
    name = asked.needed("name")
    typed = asked.text("password", most=MAX_PASSWORD_BYTES)
    if typed != asked.text("again", most=MAX_PASSWORD_BYTES):
        raise BadRequestError("password: the two are not the same")
    password = parse_password(typed.encode(), "password")
    mechanism = BY_NAME[asked.choice("mechanism", BY_NAME, next(iter(BY_NAME)))]
    await scram_users.put(console.client, name, password, [mechanism], ITERATIONS)
    return redirect(BACK)


async def remove(console: Console, asked: Asked) -> Page | Response:
    """Return what a user would lose; with `do`, take it away."""
    name = asked.needed("name")
    (user,) = await scram_users.describe(console.client, [name])
    if asked.has("do"):
        await scram_users.remove(console.client, name, [BY_NAME[m] for m in user.credentials])
        return redirect(BACK)
    return preview(
        Preview(
            f"Passwords of {name}",
            [f"{name} could connect no more."],
            ("mechanism", "iterations"),
            list(user.credentials.items()),
            "/users/remove",
            [("name", name)],
            "Take them away",
            BACK,
        )
    )
