"""`ottla znode`: what is in ZooKeeper, explained. Read-only."""

from typing import TYPE_CHECKING, Annotated

from ottla.admin.connection import Local
from ottla.admin.connection import zookeeper as zookeeper_meant
from ottla.admin.options import ZooKeeperConfig
from ottla.cli import Argument, Option
from ottla.cli.output import (
    Format,
    print_json,
    print_line,
    print_result,
    print_table,
    readable_json,
)
from ottla.local.zookeeper_session import asked

if TYPE_CHECKING:
    from ottla.zookeeper.session import Session

ZooKeeper = Annotated[
    str | None,
    Option(metavar="HOST:PORT[/ROOT]", help="ZooKeeper to ask [default: that of --dir]"),
]


def ls(
    local: Local,
    path: Annotated[str, Argument(metavar="PATH")] = "/",
    recursive: Annotated[bool, Option("--recursive", "-r", help="List all descendants")] = False,
    zookeeper: ZooKeeper = None,
    zookeeper_config: ZooKeeperConfig = None,
) -> None:
    from ottla.admin.operations import znode_reading

    async def question(session: "Session") -> list[znode_reading.Znode]:
        listed = znode_reading.tree(session, path, recursive=recursive)
        return [found async for found in listed]

    found = asked(zookeeper_meant(zookeeper, zookeeper_config, local.directory), question)
    rows = [
        (z.path, z.version, z.children, z.bytes, z.ephemeral_owner or "", z.kind) for z in found
    ]
    heads = ("path", "version", "children", "bytes", "session", "what it is")
    print_result(local.output, found, heads, rows)


def get(
    local: Local,
    path: Annotated[str, Argument(metavar="PATH")],
    zookeeper: ZooKeeper = None,
    zookeeper_config: ZooKeeperConfig = None,
) -> None:
    from ottla.admin.operations import znode_reading
    from ottla.admin.operations.record_format import moment

    found = asked(
        zookeeper_meant(zookeeper, zookeeper_config, local.directory),
        lambda session: znode_reading.read(session, path),
    )
    if local.output is Format.json:
        print_json(found)
        return
    text = readable_json(found.data) if found.encoding == "json" else found.data
    for line in (text or "(no data)").split("\n"):
        print_line(line)
    rows = [
        ("what it is", found.kind or None),
        ("version", found.version),
        ("created", moment(found.created_ms)),
        ("modified", moment(found.modified_ms)),
        ("zxid created, modified", f"{found.created_zxid:#x}, {found.modified_zxid:#x}"),
        ("session", found.ephemeral_owner),
        ("children", found.children),
    ]
    print_table(("", ""), rows)
