"""What `_schemas` says, record by record: schemas, versions, levels and modes. Touches nothing.

Invariants: ids are given once, and one schema text has one id in all subjects; a version's number
is never given again while the subject is known; what this does not know it leaves alone. Keys and
values are those of Confluent's registry (`SchemaKey`, `SchemaValue`, `ConfigKey`, `ModeKey`, …).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
TYPES = (JSON, PROTOBUF, AVRO)
Record = tuple[dict[str, Any], dict[str, Any] | None]
"""A key and a value of the topic, as JSON objects; None: a tombstone."""


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema's text with its type, and the subjects and versions it refers to by names."""

    kind: str
    text: str
    references: tuple[tuple[str, str, int], ...] = ()
    """(name, subject, version) each"""

    def fields(self) -> dict[str, Any]:
        """Return it as responses and records have it: what is usual is left out."""
        found: dict[str, Any] = {} if self.kind == AVRO else {"schemaType": self.kind}
        if self.references:
            names = ("name", "subject", "version")
            found["references"] = [dict(zip(names, one, strict=True)) for one in self.references]
        return {**found, "schema": self.text}


@dataclass(frozen=True, slots=True)
class Version:
    """A schema under a subject. Deleted ones stay known by their ids until they are purged."""

    subject: str
    version: int
    id: int
    schema: Schema
    deleted: bool = False

    def record(self, *, deleted: bool | None = None) -> Record:
        value = {"subject": self.subject, "version": self.version, "id": self.id}
        gone = self.deleted if deleted is None else deleted
        return self.key(), {**value, **self.schema.fields(), "deleted": gone}

    def key(self) -> dict[str, Any]:
        names = {"keytype": "SCHEMA", "subject": self.subject, "version": self.version}
        return {**names, "magic": 1}


def level_record(subject: str | None, level: str | None) -> Record:
    """Return the record of a compatibility level; None takes that of a subject back."""
    value = None if level is None else {"subject": subject, "compatibilityLevel": level}
    return {"keytype": "CONFIG", "subject": subject, "magic": 0}, value


def mode_record(subject: str | None, mode: str | None) -> Record:
    value = None if mode is None else {"subject": subject, "mode": mode}
    return {"keytype": "MODE", "subject": subject, "magic": 0}, value


def subject_record(subject: str, upto: int) -> Record:
    """Return the record that a subject is deleted up to a version."""
    key = {"keytype": "DELETE_SUBJECT", "subject": subject, "magic": 0}
    return key, {"subject": subject, "version": upto}


@dataclass
class State:
    """Everything that was applied so far."""

    subjects: dict[str, dict[int, Version]] = field(default_factory=dict)
    schemas: dict[int, Schema] = field(default_factory=dict)
    levels: dict[str | None, str] = field(default_factory=dict)
    """By subject; None: of all."""
    modes: dict[str | None, str] = field(default_factory=dict)

    def apply(self, key: Mapping[str, Any], value: Mapping[str, Any] | None) -> None:
        """Take a record of the topic in."""
        subject = key.get("subject")
        match key.get("keytype"):
            case "SCHEMA":
                self._apply_schema(str(subject), int(key["version"]), value)
            case "CONFIG":
                _put(self.levels, subject, value and value["compatibilityLevel"])
            case "MODE":
                _put(self.modes, subject, value and value["mode"])
            case "DELETE_SUBJECT" if value is not None:
                for one in list(self.subjects.get(str(subject), {}).values()):
                    if one.version <= int(value["version"]):
                        self._keep(_deleted(one))
            case _:  # NOOP, and kinds of later registries
                pass

    def _apply_schema(self, subject: str, version: int, value: Mapping[str, Any] | None) -> None:
        if value is None:
            versions = self.subjects.get(subject, {})
            versions.pop(version, None)
            if not versions:
                self.subjects.pop(subject, None)
            return
        references = tuple(
            (str(r["name"]), str(r["subject"]), int(r["version"]))
            for r in value.get("references") or ()
        )
        schema = Schema(value.get("schemaType") or AVRO, value["schema"], references)
        self._keep(Version(subject, version, int(value["id"]), schema, bool(value.get("deleted"))))

    def _keep(self, one: Version) -> None:
        self.subjects.setdefault(one.subject, {})[one.version] = one
        self.schemas.setdefault(one.id, one.schema)

    # -- questions ------------------------------------------------------------------------------

    def versions(self, subject: str, *, deleted: bool = False) -> list[Version]:
        """Return the versions of a subject in order; with `deleted` also those."""
        found = sorted(self.subjects.get(subject, {}).values(), key=lambda one: one.version)
        return [one for one in found if deleted or not one.deleted]

    def of_id(self, schema_id: int, *, deleted: bool = False) -> list[Version]:
        return [
            one
            for subject in sorted(self.subjects)
            for one in self.versions(subject, deleted=deleted)
            if one.id == schema_id
        ]

    def referring(self, subject: str, version: int) -> list[Version]:
        """Return the versions that refer to one."""
        return [
            one
            for name in sorted(self.subjects)
            for one in self.versions(name)
            if (subject, version) in {(r[1], r[2]) for r in one.schema.references}
        ]

    def level(self, subject: str | None) -> str:
        return self.levels.get(subject) or self.levels.get(None) or "BACKWARD"

    def mode(self, subject: str | None) -> str:
        return self.modes.get(subject) or self.modes.get(None) or "READWRITE"


def _deleted(one: Version) -> Version:
    return Version(one.subject, one.version, one.id, one.schema, deleted=True)


def _put(found: dict[str | None, str], subject: str | None, value: Any) -> None:
    if value is None:
        found.pop(subject, None)
    else:
        found[subject] = str(value)
