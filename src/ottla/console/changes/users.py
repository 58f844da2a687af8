"""Users with SCRAM passwords: listed, given a password, removed.

Invariants: a password is on no page and in no line; between its preview and the button it is kept
in memory, then sent to a broker and forgotten.
"""

from starlette.responses import Response

from ottla.admin.operations.input_files import MAX_PASSWORD_BYTES, parse_password
from ottla.client import scram_users
from ottla.console.asked import Asked, BadRequestError
from ottla.console.changes.preview import Preview, preview
from ottla.console.kept import KEPT_S
from ottla.console.page import Page, redirect
from ottla.console.rendering import paged
from ottla.console.state import Console, Password
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


async def put(console: Console, asked: Asked) -> Page | Response:
    """Return who would get a password that was typed twice; with `do`, give it."""
    if asked.has("do"):
        kept = console.passwords.take(asked.text("kept"))
        if kept is None:
            raise BadRequestError(
                f"password: the preview expired after {KEPT_S / 60:g} minutes or was already used; "
                "enter it again"
            )
        mechanism = BY_NAME[kept.mechanism]
        await scram_users.put(console.client, kept.user, kept.text, [mechanism], ITERATIONS)
        return redirect(BACK)
    name = asked.needed("name")
    typed = asked.text("password", most=MAX_PASSWORD_BYTES)
    if typed != asked.text("again", most=MAX_PASSWORD_BYTES):
        raise BadRequestError("password: the passwords do not match")
    password = parse_password(typed.encode(), "password")
    mechanism_name = asked.choice("mechanism", BY_NAME, next(iter(BY_NAME)))
    has = {u.name: u.credentials for u in await scram_users.describe(console.client)}.get(name, {})
    now = has.get(mechanism_name)
    lines = ["The password is not shown. Brokers receive only its SCRAM verifier."]
    if now is not None:
        lines.append("This replaces the user's current password for this mechanism.")
    return preview(
        Preview(
            f"Password of {name}",
            lines,
            ("user", "mechanism", "current iterations", "new iterations"),
            [(name, mechanism_name, now, ITERATIONS)],
            "/users/put",
            [("kept", console.passwords.put(Password(name, mechanism_name, password)))],
            "Set password",
            BACK,
        )
    )


async def remove(console: Console, asked: Asked) -> Page | Response:
    """Return what a user would lose; with `do`, take it away."""
    name = asked.needed("name")
    if asked.has("do"):
        named = asked.needed("mechanisms").split(",")
        unknown = [m for m in named if m not in BY_NAME]
        if unknown:
            raise BadRequestError(f"mechanisms: must be among {', '.join(BY_NAME)}")
        await scram_users.remove(console.client, name, [BY_NAME[m] for m in named])
        return redirect(BACK)
    (user,) = await scram_users.describe(console.client, [name])
    return preview(
        Preview(
            f"Passwords of {name}",
            [f"{name} will no longer be able to connect."],
            ("mechanism", "iterations"),
            list(user.credentials.items()),
            "/users/remove",
            [("name", name), ("mechanisms", ",".join(user.credentials))],
            "Remove passwords",
            BACK,
        )
    )
