"""A lake's tables by topic: where they lie, and how they are opened or made.

Delta:    PATH/TOPIC/data and PATH/TOPIC/dead
Iceberg:  NAMESPACE.TOPIC and NAMESPACE.TOPIC__dead in a catalog, under the same addresses
"""

import os
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from ottla.model.errors import OttlaError
from ottla.pipelines.lake.settings import Settings
from ottla.pipelines.lake.tables import Table

DATA, DEAD = "data", "dead"
Pair = tuple[Table, Table]
"""The table of rows, and that of dead letters."""


def address(path: str) -> str:
    """Return a folder as an address that Arrow, Delta and Iceberg know."""
    return path.rstrip("/") if "://" in path else f"file://{os.path.abspath(path)}"  # noqa: PTH100


class Tables:
    """The tables of a lake."""

    def __init__(self, settings: Settings) -> None:
        self.path = address(settings.lake.path)
        self._iceberg = settings.lake.format == "iceberg"
        if self._iceberg:
            from ottla.pipelines.lake.iceberg import open_catalog

            self._catalog, self._namespace = open_catalog(self.path, settings.catalog)

    def _name(self, topic: str, kind: str) -> tuple[str, str]:
        return self._namespace, topic if kind == DATA else f"{topic}__{kind}"

    def _open(self, topic: str, kind: str) -> Table | None:
        if self._iceberg:
            from ottla.pipelines.lake.iceberg import open_iceberg

            return open_iceberg(self._catalog, self._name(topic, kind))
        from ottla.pipelines.lake.delta import open_delta

        return open_delta(f"{self.path}/{topic}/{kind}")

    def open(self, topic: str) -> Pair | None:
        """Open a topic's tables; None if they are not there, or not both."""
        rows, dead = self._open(topic, DATA), self._open(topic, DEAD)
        return None if rows is None or dead is None else (rows, dead)

    def refuse_strangers(self, topic: str) -> None:
        """Refuse a folder with files of something else, for a topic without a table of rows.

        Only in file systems: elsewhere there are no folders.
        """
        if not self.path.startswith("file://"):
            return
        path = Path(self.path.removeprefix("file://")) / topic
        if (path / "table.json").exists():
            raise OttlaError(f"{path} is a lake of Ottla 0.1: convert it with --migrate")
        if self._open(topic, DATA) is not None:
            return
        # A run that was killed may have left a table that is just made.
        own = {DATA: path / DATA, DEAD: path / DEAD}
        made = "metadata" if self._iceberg else "_delta_log"
        for folder, names in ((path, set(own)), (own[DATA], {made}), (own[DEAD], {made})):
            if folder.exists() and {found.name for found in folder.iterdir()} - names:
                raise OttlaError(f"{folder} is not empty and does not hold a table of this job")

    def create(
        self,
        topic: str,
        schema: pa.Schema,
        dead: pa.Schema,
        date_column: str | None,
        properties: Mapping[str, str],
    ) -> Pair:
        """Make a topic's tables, or those of both that are missing."""
        return (
            self._create(topic, DATA, schema, date_column, properties),
            self._create(topic, DEAD, dead, None, properties),
        )

    def _create(
        self,
        topic: str,
        kind: str,
        schema: pa.Schema,
        date_column: str | None,
        properties: Mapping[str, str],
    ) -> Table:
        uri = f"{self.path}/{topic}/{kind}"
        if self._iceberg:
            from ottla.pipelines.lake.iceberg import create_iceberg

            name = self._name(topic, kind)
            return create_iceberg(self._catalog, name, uri, schema, date_column, properties)
        from ottla.pipelines.lake.delta import create_delta

        return create_delta(uri, schema, date_column, properties)
