"""Copies of a simulated disk's folder, and their return: other files with the same content."""

from ottla.sim.files import SimDisk


def copied(disk: SimDisk, folder: str) -> dict[str, bytes | None]:
    """Return all below a folder by path: contents of files, None for folders."""
    inside = folder + "/"
    found: dict[str, bytes | None] = {f: None for f in disk.folders if f.startswith(inside)}
    return found | {p: bytes(i.data) for p, i in disk.inodes.items() if p.startswith(inside)}


def put_back(disk: SimDisk, folder: str, kept: dict[str, bytes | None]) -> None:
    """Replace a folder's content by a copy; nothing holds its files any more."""
    disk.wipe(folder)
    disk.folders.add(folder)
    for path, data in sorted(kept.items()):
        if data is None:
            disk.folders.add(path)
        else:
            inode = disk.add(path)
            inode.write(0, data)
            inode.sync()
    disk.commit()
