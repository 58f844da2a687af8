"""The doctor: what is wrong or unsafe, why, and the command that fixes it."""

from ottla.console.asked import Asked
from ottla.console.page import Page
from ottla.console.pages.overview import health
from ottla.console.state import Console


async def page(console: Console, asked: Asked) -> Page:
    """Return the findings there are; `again` asks for new ones."""
    console.diagnosing.begin(again=asked.has("again"))
    return Page("doctor.html", {"title": "Doctor", **health(console)})


async def parts(console: Console, _asked: Asked) -> dict[str, Page]:
    """Return what is updated live: the findings, once they are there."""
    return {"findings": Page("part_doctor.html", health(console))}
