"""List the requests of Kafka's protocol that we know: versions, whether served, and by what.

    python docs/list_protocol.py

writes docs/PROTOCOL.md; a unit test keeps the committed file equal to what the code says.
"""

import inspect
from pathlib import Path

from ottla.broker.requests.groups import group_admin
from ottla.broker.requests.routes import ROUTES
from ottla.wire.apis import APIS

HEAD = """\
# The requests a broker serves

Written by `docs/list_protocol.py` from `src/ottla/wire/apis.py` and `src/ottla/broker/requests/routes.py`; do not edit.
ApiVersions lists exactly the served and the refused rows. "Flexible" is the first version with compact types and tagged fields. Every version of
every served row is held to Kafka's own answers by `python tests/oracle/differential.py`; of 4 to 7 and 56, which pass between
controllers and brokers, the damaged and the outdated requests: the right ones have tests of their own.

| key | request | versions | flexible | served by |
|---|---|---|---|---|
"""

TAIL = """
Fetch 0 to 3 and Produce 0 to 2 are served as far as records of format 2 go ([COMPATIBILITY.md](COMPATIBILITY.md)). A request of
another key, or of a version outside these ranges, closes its connection; only ApiVersions is answered then, in version 0, with
UNSUPPORTED_VERSION and its own range.
"""


def row(key: int) -> str:
    spec = APIS[key]
    flexible = "–" if spec.flexible_version is None else f"{spec.flexible_version}+"
    api = ROUTES.get(key)
    served = "not served"
    if api is not None and api.handle is group_admin.refuse:
        served = "refused at once with UNSUPPORTED_VERSION"
    elif api is not None:
        handler = api.handle
        module = inspect.getmodule(handler)
        assert module is not None
        served = f"`{module.__name__.removeprefix('ottla.broker.')}.{handler.__name__}`"
    return (
        f"| {key} | {spec.name} | {spec.min_version}–{spec.max_version} | {flexible} | {served} |\n"
    )


def page() -> str:
    return HEAD + "".join(row(key) for key in sorted(APIS)) + TAIL


if __name__ == "__main__":
    Path(__file__).with_name("PROTOCOL.md").write_text(page(), encoding="utf-8")
