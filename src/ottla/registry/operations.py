"""What the REST API does, over the state of `_schemas`. Confluent: `KafkaSchemaRegistry`.

Invariants: what is decided was decided over everything that the topic held; nothing is changed by
what is refused.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from ottla.registry import formats
from ottla.registry.failures import (
    RegistryError,
    invalid_schema,
    subject_not_found,
    version_not_found,
)
from ottla.registry.formats import LEVELS, Resolved
from ottla.registry.state import (
    AVRO,
    Record,
    Schema,
    State,
    Version,
    level_record,
    mode_record,
    subject_record,
)
from ottla.registry.store import Store

MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")
LATEST_NAMES = ("latest", "-1")
MAX_VERSION = 2**31 - 1
REFERENCES_AT_MOST = 1000


class Registry:
    """Subjects with their versions; one change at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._changing = asyncio.Lock()

    @property
    def state(self) -> State:
        return self._store.state

    async def _change(self, decide: Callable[[], tuple[list[Record], Any]]) -> Any:
        """Decide over everything that was written, write what that gives, return its answer."""
        async with self._changing:
            await self._store.refresh()
            records, answer = decide()
            if records:
                await self._store.write(*records)
            return answer

    # -- schemas --------------------------------------------------------------------------------

    async def register(self, subject: str, asked: Schema, as_id: int, as_version: int) -> Version:
        """Return the version that a schema is, a new one if it is not known; RegistryError."""
        new: Version = await self._change(lambda: self._register(subject, asked, as_id, as_version))
        return new

    def _register(
        self, subject: str, asked: Schema, as_id: int, as_version: int
    ) -> tuple[list[Record], Version]:
        mode = self.state.mode(subject)
        if mode.startswith("READONLY") or (mode != "IMPORT" and as_id > 0):
            raise RegistryError(42205, f"Subject {subject} is in {mode.lower()} mode")
        schema = formats.checked(asked, self.resolved(asked))
        same = self._same(subject, schema, deleted=False)
        if same is not None:
            return [], same
        earlier = self.state.versions(subject)
        if mode != "IMPORT":
            self._refuse_incompatible(self.state.level(subject), schema, earlier)
        known = self.state.versions(subject, deleted=True)
        number = as_version if as_version > 0 else (known[-1].version + 1 if known else 1)
        if number > MAX_VERSION or (as_version > 0 and any(v.version == number for v in known)):
            raise RegistryError(42205, f"Version {number} of {subject} cannot be given")
        schema_id = as_id if as_id > 0 else self._id(schema)
        there = self.state.schemas.get(schema_id)
        if there is not None and self._identity(there) != self._identity(schema):
            raise RegistryError(42205, f"Schema id {schema_id} is that of another schema")
        new = Version(subject, number, schema_id, schema)
        return [new.record()], new

    def _refuse_incompatible(self, level: str, schema: Schema, earlier: list[Version]) -> None:
        why = formats.problems(level, schema, earlier, self.resolved)
        if why:
            raise RegistryError(
                409,
                "Schema being registered is incompatible with an earlier schema for subject "
                f'"{earlier[-1].subject}", details: {why}, compatibility: {level}',
            )

    def _id(self, schema: Schema) -> int:
        wanted = self._identity(schema)
        for schema_id, known in self.state.schemas.items():
            if known.kind == schema.kind and self._identity(known) == wanted:
                return schema_id
        return max(self.state.schemas, default=0) + 1

    def _identity(self, schema: Schema) -> tuple[object, ...]:
        return formats.identity(schema, self.resolved(schema))

    def _same(self, subject: str, schema: Schema, *, deleted: bool) -> Version | None:
        wanted = self._identity(schema)
        for one in reversed(self.state.versions(subject, deleted=deleted)):
            if one.schema == schema or self._identity(one.schema) == wanted:
                return one
        return None

    def resolved(self, schema: Schema) -> Resolved:
        """Return the names and texts that a schema refers to, the deepest first."""
        found: dict[str, str] = {}
        self._resolve(schema, found, set())
        return tuple(found.items())

    def _resolve(self, schema: Schema, found: dict[str, str], above: set[str]) -> None:
        for name, subject, version in schema.references:
            other = self.state.subjects.get(subject, {}).get(version)
            if other is None:
                raise invalid_schema(f"no version {version} of {subject}, which {name} refers to")
            if name in above or len(found) > REFERENCES_AT_MOST:
                raise invalid_schema(f"{name} refers to itself, or to too many others")
            if name not in found:
                self._resolve(other.schema, found, above | {name})
                found[name] = other.schema.text

    def lookup(self, subject: str, asked: Schema, *, deleted: bool) -> Version:
        if not self.state.versions(subject, deleted=deleted):
            raise subject_not_found(subject)
        schema = formats.checked(asked, self.resolved(asked))
        same = self._same(subject, schema, deleted=deleted)
        if same is None:
            raise RegistryError(40403, "Schema not found")
        return same

    def compatible(self, subject: str, version: str | None, asked: Schema) -> list[str]:
        """Return why a schema is not compatible with a version; None: as registering it asks."""
        schema = formats.checked(asked, self.resolved(asked))
        level = self.state.level(subject)
        if version is None:
            earlier = self.state.versions(subject)
        else:
            earlier = [self.version(subject, version)]
        return formats.problems(level, schema, earlier, self.resolved)

    def version(self, subject: str, version: str, *, deleted: bool = False) -> Version:
        """Return a version by its number, or the latest one."""
        found = self.state.versions(subject, deleted=deleted)
        if not found and not self.state.versions(subject, deleted=True):
            raise subject_not_found(subject)
        if version in LATEST_NAMES:
            if not found:
                raise subject_not_found(subject)
            return found[-1]
        if not version.isascii() or not version.isdigit() or not 0 < int(version) <= MAX_VERSION:
            raise RegistryError(
                42202,
                f"The specified version '{version}' is not a valid version id. Allowed values are "
                'between [1, 2^31-1] and the string "latest"',
            )
        for one in found:
            if one.version == int(version):
                return one
        raise version_not_found(version)

    # -- deleting -------------------------------------------------------------------------------

    async def delete_version(self, subject: str, version: str, *, permanent: bool) -> int:
        def decide() -> tuple[list[Record], int]:
            self._refuse_readonly(subject)
            one = self.version(subject, version, deleted=True)
            if self.state.referring(subject, one.version):
                raise RegistryError(
                    42206, f"One or more references exist to {subject} version {one.version}."
                )
            if permanent:
                if not one.deleted:
                    raise RegistryError(
                        40407,
                        f"Subject '{subject}' Version {one.version} was not deleted first before "
                        "being permanently deleted",
                    )
                return [(one.key(), None)], one.version
            if one.deleted:
                raise RegistryError(
                    40406,
                    f"Subject '{subject}' Version {one.version} was soft deleted. Set "
                    "permanent=true to delete permanently",
                )
            return [one.record(deleted=True)], one.version

        return int(await self._change(decide))

    async def delete_subject(self, subject: str, *, permanent: bool) -> list[int]:
        def decide() -> tuple[list[Record], list[int]]:
            self._refuse_readonly(subject)
            everything = self.state.versions(subject, deleted=True)
            live = self.state.versions(subject)
            if not everything:
                raise subject_not_found(subject)
            for one in live:
                if self.state.referring(subject, one.version):
                    raise RegistryError(
                        42206, f"One or more references exist to {subject} version {one.version}."
                    )
            if permanent:
                if live:
                    raise RegistryError(
                        40405,
                        f"Subject '{subject}' was not deleted first before being permanently "
                        "deleted",
                    )
                return [(one.key(), None) for one in everything], [v.version for v in everything]
            if not live:
                raise RegistryError(
                    40404,
                    f"Subject '{subject}' was soft deleted. Set permanent=true to delete "
                    "permanently",
                )
            return [subject_record(subject, live[-1].version)], [one.version for one in live]

        return list(await self._change(decide))

    def _refuse_readonly(self, subject: str) -> None:
        mode = self.state.mode(subject)
        if mode.startswith("READONLY"):
            raise RegistryError(42205, f"Subject {subject} is in {mode.lower()} mode")

    # -- levels and modes -----------------------------------------------------------------------

    async def set_level(self, subject: str | None, level: str) -> str:
        if level not in LEVELS:
            raise RegistryError(
                42203, f"Invalid compatibility level. Valid values are {', '.join(LEVELS)}"
            )
        return str(await self._change(lambda: ([level_record(subject, level)], level)))

    async def unset_level(self, subject: str | None) -> str:
        def decide() -> tuple[list[Record], str]:
            before = self.state.levels.get(subject)
            if before is None and subject is not None:
                raise subject_not_found(subject)
            return [level_record(subject, None)], before or self.state.level(None)

        return str(await self._change(decide))

    async def set_mode(self, subject: str | None, mode: str, *, force: bool) -> str:
        if mode not in MODES:
            raise RegistryError(42204, f"Invalid mode. Valid values are {', '.join(MODES)}")

        def decide() -> tuple[list[Record], str]:
            there = self.state.versions(subject) if subject else list(self.state.subjects)
            if mode == "IMPORT" and there and not force:
                raise RegistryError(
                    42205, "Cannot import since found existing subjects (force=true does it)"
                )
            return [mode_record(subject, mode)], mode

        return str(await self._change(decide))

    async def unset_mode(self, subject: str) -> str:
        def decide() -> tuple[list[Record], str]:
            before = self.state.modes.get(subject)
            if before is None:
                raise subject_not_found(subject)
            return [mode_record(subject, None)], before

        return str(await self._change(decide))


def asked_schema(body: dict[str, Any]) -> Schema:
    """Return the schema of a request; RegistryError if there is none."""
    text, kind = body.get("schema"), body.get("schemaType") or AVRO
    if not isinstance(text, str) or not text or not isinstance(kind, str):
        raise RegistryError(42201, "Empty schema")
    try:
        references = tuple(
            (str(r["name"]), str(r["subject"]), int(r["version"]))
            for r in body.get("references") or ()
        )
    except (TypeError, KeyError, ValueError) as error:
        raise invalid_schema(f"references: {error!r}") from None
    return Schema(kind, text, references)
