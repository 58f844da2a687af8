"""Settings of a topic, a broker, or all brokers: value, where it comes from, the default.

Invariants: what is sensitive has no value: no broker tells it.
"""

from ottla.client import configs
from ottla.client.configs import Setting
from ottla.console.asked import Asked, BadRequestError
from ottla.console.page import Page
from ottla.console.state import Console

KINDS = {"topic": configs.TOPIC, "broker": configs.BROKER}
DEFAULT = "default"
MOST_BROKERS = 100
"""To whose settings a page leads."""


def default_of(setting: Setting) -> str | None:
    """Return the value there is if nothing is set; None where a broker does not tell."""
    return next((s.value for s in setting.synonyms if s.source == DEFAULT), None)


def resource(asked: Asked) -> tuple[int, str, str]:
    """Return kind, name, and both as a person says them; an empty name is all brokers."""
    name = asked.text("name")
    kind = KINDS[asked.choice("kind", KINDS, "topic" if name else "broker")]
    if kind == configs.TOPIC and not name:
        raise BadRequestError("name: enter a topic")
    if kind == configs.BROKER and name and not (name.isascii() and name.isdigit()):
        raise BadRequestError(f"name: {name[:40]} is not a broker id")
    return kind, name, configs.shown(kind, name)


async def page(console: Console, asked: Asked) -> Page:
    """Return the settings; `set` shows only what was set, `q` looks for a word."""
    kind, name, shown = resource(asked)
    wanted, only_set = asked.text("q"), asked.has("set")
    rows = [
        (setting, default_of(setting))
        for setting in await configs.settings(console.client, kind, name)
        if wanted in setting.key and not (only_set and setting.source == DEFAULT)
    ]
    look = await console.watcher.look() if kind == configs.BROKER else None
    values = {
        "brokers": () if look is None else sorted(look.brokers)[:MOST_BROKERS],
        "kind": "topic" if kind == configs.TOPIC else "broker",
        "name": name,
        "shown": shown,
        "rows": rows,
        "q": wanted,
        "only_set": only_set,
    }
    return Page("settings.html", {"title": f"Settings of {shown}", **values})
