"""Strays in a log dir of this machine: whose they were, how large, since when.

Invariants: nothing is changed; what goes away meanwhile is left out, and so is a log dir that this
user may not read. The folders of damaged replicas (adr/0008) have the same suffix, and are not
strays.
"""

from datetime import UTC, datetime
from pathlib import Path

from ottla.admin.diagnosis.facts import Stray
from ottla.log import damage, lives
from ottla.log.log_dir import STRAY
from ottla.log.stray_folders import NEVER, STRAY_NOTE, StrayNote, decode
from ottla.model.ids import uuid_to_text


def in_folder(broker: int, log_dir: str, retention_ms: int) -> list[Stray]:
    """Return the strays of a log dir, by name; `retention_ms`: how long its broker keeps them."""
    found = []
    try:
        if _zookeeper_went_back(log_dir):
            retention_ms = NEVER
        folders = sorted(Path(log_dir).glob(f"*{STRAY}"))
        for folder in folders:
            if not folder.is_dir() or (folder / damage.DAMAGE_FILE).exists():
                continue
            note = _note(folder)
            found.append(
                Stray(
                    broker,
                    str(folder),
                    str(note.tp) if note else folder.name.rpartition(".")[0],
                    uuid_to_text(note.topic_id) if note else "unknown",
                    sum(path.stat().st_size for path in folder.iterdir()),
                    _time(note.since_ms) if note else "",
                    _time(note.since_ms + retention_ms) if note and retention_ms != NEVER else "",
                )
            )
    except OSError:
        return found
    return found


def _zookeeper_went_back(log_dir: str) -> bool:
    note = Path(log_dir) / lives.LIFE_FILE
    return note.exists() and lives.decode(note.read_bytes()).zookeeper_went_back


def _note(folder: Path) -> StrayNote | None:
    try:
        return decode((folder / STRAY_NOTE).read_bytes())
    except FileNotFoundError:
        return None


def _time(wall_ms: int) -> str:
    return f"{datetime.fromtimestamp(wall_ms / 1000, UTC):%F %T} UTC"
