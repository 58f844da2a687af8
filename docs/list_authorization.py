"""List what a client must be allowed to do for each request, from the entries of the APIs.

    python docs/list_authorization.py

writes docs/AUTHORIZATION.md; a unit test keeps the committed file equal to what the code says.
"""

from pathlib import Path

from ottla.broker.requests.access import ERRORS, Need
from ottla.broker.requests.routes import ROUTES
from ottla.security.acls import IMPLIED_BY, OPERATIONS, RESOURCE_TYPES, SUPPORTED
from ottla.wire.apis import APIS

HEAD = """\
# What each request needs

Written by `docs/list_authorization.py` from the `access` of each `Api` in `src/ottla/broker/requests`; do not edit. It is what Kafka
3.9 asks for in ZooKeeper mode: `python tests/oracle/differential_access.py` sends every request in every version with every one of
these permissions given, missing, denied and replaced by others, to Kafka and to us, and compares the answers. How ACLs are set:
[security/ACLS.md](security/ACLS.md).

Where it is checked: **whole** – before the handler; without it the whole request fails. **check** – the same by a function beside the
handler. **each** – for each element of a list; those that lack it are answered with the error, the handler sees the others.
**handler** – by the handler, which shows only what is allowed.
What is only listed, not asked for by its name, is left out without an error.

| key | request | operation | resource | where | error | when |
|---|---|---|---|---|---|---|
"""
RESOURCES = """
## Operations of each resource

| resource | operations |
|---|---|
"""


def row(key: int, where: str, need: Need) -> str:
    error = ERRORS[need.resource_type].name
    note = need.note
    if note.endswith(":"):
        note, error = f"{note} the next row is enough", "–"
    return (
        f"| {key} | {APIS[key].name} | {OPERATIONS[need.operation]} | "
        f"{RESOURCE_TYPES[need.resource_type]} | {where} | {error} | {note} |\n"
    )


def rows(key: int) -> str:
    access = ROUTES[key].access
    if access.open:
        return f"| {key} | {APIS[key].name} | – | – | – | – | {access.open} |\n"
    found = []
    for where, need in access.needs:
        alternatives = next((a for a in access.whole if need in a and len(a) > 1), ())
        one_of = alternatives and need is not alternatives[-1]
        found.append(row(key, where, need._replace(note="or:") if one_of else need))
    return "".join(found)


def resources() -> str:
    lines = [
        f"| {name} | {', '.join(OPERATIONS[o] for o in SUPPORTED[kind])} |\n"
        for kind, name in RESOURCE_TYPES.items()
    ]
    implied = [
        f"{OPERATIONS[o]} is implied by {', '.join(OPERATIONS[i] for i in by if i != o)}."
        for o, by in IMPLIED_BY.items()
    ]
    return "".join(lines) + "\n" + " ".join(implied) + " A denial implies nothing.\n"


def page() -> str:
    return HEAD + "".join(rows(key) for key in sorted(ROUTES)) + RESOURCES + resources()


if __name__ == "__main__":
    Path(__file__).with_name("AUTHORIZATION.md").write_text(page(), encoding="utf-8")
