"""Times as users write them."""

from datetime import UTC, datetime

from ottla.model.errors import ConfigError


def parse_time(text: str) -> int:
    """Return a time in ISO 8601 as milliseconds since 1970; without a zone it is UTC."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"{text!r} is no time; write 2026-01-31T12:00:00") from None
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return int(found.timestamp() * 1000)
