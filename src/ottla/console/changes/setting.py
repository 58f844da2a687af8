"""One setting of a topic, a broker or all brokers: checked by the cluster, shown, then changed."""

from starlette.responses import Response

from ottla.client import configs
from ottla.client.configs import APPEND, DELETE, SET, SUBTRACT, Change
from ottla.console.asked import Asked, BadRequestError
from ottla.console.changes.preview import Preview, preview
from ottla.console.page import Page, redirect
from ottla.console.pages.settings import resource
from ottla.console.rendering import path
from ottla.console.state import Console

OPERATIONS = {"set": SET, "delete": DELETE, "append": APPEND, "subtract": SUBTRACT}
MOST_VALUE = 100_000


async def alter(console: Console, asked: Asked) -> Page | Response:
    """Return the preview of a change, which the brokers have checked; with `do`, make it."""
    kind, name, shown = resource(asked)
    key, operation = asked.needed("key"), asked.choice("operation", OPERATIONS, "set")
    value = asked.text("value", most=MOST_VALUE)
    if operation == "delete" and value:
        raise BadRequestError("value: must be empty when a setting is deleted")
    change = Change(OPERATIONS[operation], key, None if operation == "delete" else value)
    at = path("settings", kind=asked.text("kind", "topic"), name=name, q=key)
    if asked.has("do"):
        await configs.apply(console.client, kind, name, [change])
        return redirect(at)
    await configs.apply(console.client, kind, name, [change], validate_only=True)
    found = {s.key: s for s in await configs.settings(console.client, kind, name)}
    before = found.get(key)
    secret = before is not None and before.sensitive
    fields = [(n, asked.text(n, most=MOST_VALUE)) for n in ("kind", "name", "key", "value")]
    return preview(
        Preview(
            f"Setting of {shown}",
            ["The brokers would accept this change."],
            ("key", "now", "source", "what", "value"),
            [
                (
                    key,
                    "hidden" if secret else None if before is None else before.value,
                    "not set" if before is None else before.source,
                    operation,
                    "hidden" if secret else change.value,
                )
            ],
            "/settings/alter",
            [*fields, ("operation", operation)],
            f"Change {key}",
            at,
        )
    )
