"""`ottla znode`: what is in ZooKeeper, explained. Read-only."""

from typing import Annotated, Any

from ottla.admin.arguments import Argument, Option
from ottla.admin.connection import zookeeper as zookeeper_meant
from ottla.admin.options import Dir, Output, ZooKeeperConfig
from ottla.admin.output import (
    Format,
    print_line,
    print_structured,
    print_table,
    readable_json,
    structured,
)
from ottla.local.zookeeper_session import asked

ZooKeeper = Annotated[
    str | None,
    Option(metavar="HOST:PORT[/ROOT]", help="Any ZooKeeper [default: that of --dir]"),
]


def ls(
    path: Annotated[str, Argument(metavar="PATH")] = "/",
    recursive: Annotated[
        bool, Option("--recursive", "-r", help="Also what is further down")
    ] = False,
    zookeeper: ZooKeeper = None,
    zookeeper_config: ZooKeeperConfig = None,
    directory: Dir = None,
    output: Output = Format.table,
) -> None:
    """List the znodes below one.

    Example: ottla znode ls /brokers/topics/orders -r
    """
    from ottla.admin.operations import znode_reading

    async def question(session: Any) -> list[dict[str, Any]]:
        listed = znode_reading.tree(session, path, recursive=recursive)
        return [found async for found in listed]

    found = asked(zookeeper_meant(zookeeper, zookeeper_config, directory), question)
    if structured(output):
        print_structured(output, [{k: v for k, v in f.items() if k != "data"} for f in found])
        return
    rows = [
        (f["path"], f["version"], f["children"], f["bytes"], f["ephemeral_owner"] or "", f["kind"])
        for f in found
    ]
    print_table(("path", "version", "children", "bytes", "session", "what it is"), rows)


def get(
    path: Annotated[str, Argument(metavar="PATH")],
    zookeeper: ZooKeeper = None,
    zookeeper_config: ZooKeeperConfig = None,
    directory: Dir = None,
    output: Output = Format.table,
) -> None:
    """Show a znode's data, and what ZooKeeper knows about it.

    Example: ottla znode get /brokers/topics/orders/partitions/0/state
    """
    from ottla.admin.operations import znode_reading
    from ottla.admin.operations.record_format import moment

    async def question(session: Any) -> dict[str, Any]:
        return await znode_reading.read(session, path)

    found = asked(zookeeper_meant(zookeeper, zookeeper_config, directory), question)
    if structured(output):
        print_structured(output, found)
        return
    data = found["data"]
    text = readable_json(data) if found["encoding"] == "json" else data
    for line in (text or "(no data)").split("\n"):
        print_line(line)
    rows = [
        ("what it is", found["kind"] or None),
        ("version", found["version"]),
        ("created", moment(found["created_ms"])),
        ("modified", moment(found["modified_ms"])),
        ("zxid created, modified", f"{found['created_zxid']:#x}, {found['modified_zxid']:#x}"),
        ("session", found["ephemeral_owner"]),
        ("children", found["children"]),
    ]
    print_table(("", ""), rows)
