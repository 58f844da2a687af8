"""A ZooKeeper server's files on a simulated disk, and what is in them."""

import asyncio

from ottla.sim.files import SimDisk, SimFiles
from ottla.sim.world import simulate
from ottla.zookeeper import jute
from ottla.zookeeper.database import Database
from ottla.zookeeper.operations import Create


class Only:
    """A world of files alone."""

    def __init__(self, disk: SimDisk) -> None:
        self.files = SimFiles(disk)


def opened(disk: SimDisk) -> Database:
    database = Database(Only(disk), "/data")
    database.open()
    database.release()
    return database


def picture(database: Database) -> dict:
    return {p: (n.data, n.stat(), n.acl) for p, n in database.tree.nodes.items()}


def written(batches: int, size: int, snapshot_transactions: int = 100_000):
    """Return a disk with so many batches of so many creates, and the tree after each of them."""
    disk = SimDisk()
    pictures = []

    async def main(simulation, node):
        node.disk = disk
        node.world.files.disk = disk
        database = Database(node.world, "/data", snapshot_transactions=snapshot_transactions)
        database.open()
        for batch in range(batches):
            for i in range(size):
                tree = database.tree
                outcome = tree.transact([Create(f"/b{batch}-{i}", b"x" * 1500)], 1, 1000)
                body = jute.string(outcome.done[0].path) + jute.buffer(b"x" * 1500)
                body += jute.OPEN_ACL + b"\0" + jute.INT.pack(outcome.done[0].creations)
                database.append(1, i, 1000, jute.CREATE, body)
            while database.durable < database.appended or database._snapshotting:
                await asyncio.sleep(0.01)
            pictures.append(picture(database))
        await database.close()

    simulate("written", main)
    return disk, pictures
