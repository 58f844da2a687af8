"""From a schema to a function that decodes a value's payload, by the libraries of its kind.

Invariants: a decoder raises ValueError, of one line, for what does not fit its schema, or has bytes
left over; what it returns are plain Python values that pyarrow takes: dicts, lists, str, bytes,
int, float, bool, Decimal, date, time, datetime, None.
"""

import base64
import binascii
import io
import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

from ottla.model.errors import ConfigError
from ottla.pipelines.schemas.registry import RegisteredSchema, UnknownSchemaError
from ottla.wire.avro import Schema, bound_decimals, why_unbounded

Decode = Callable[[memoryview], Any]


def decoder_of(schema: RegisteredSchema) -> Decode:
    """Return the decoder of a schema; UnknownSchemaError if its library refuses it."""
    make = {"AVRO": _avro, "JSON": _json, "PROTOBUF": _protobuf}.get(schema.kind)
    if make is None:
        raise UnknownSchemaError(f"schemas of type {schema.kind} are not known here")
    try:
        return make(schema)
    except ImportError as error:
        raise ConfigError(
            f"{schema.kind} needs {error.name}: pip install 'ottla[schemas]'"
        ) from None


def one_line(error: object) -> str:
    return " ".join(str(error).split())[:500] or type(error).__name__


# -- Avro ---------------------------------------------------------------------------------------


def _avro(schema: RegisteredSchema) -> Decode:
    import fastavro
    from fastavro.schema import SchemaParseException, UnknownType

    named: dict[str, Any] = {}
    try:
        for _, other in schema.references:
            fastavro.parse_schema(json.loads(other.text), named_schemas=named)
        parsed = fastavro.parse_schema(json.loads(schema.text), named_schemas=named)
    except (SchemaParseException, UnknownType, ValueError, TypeError, KeyError) as error:
        raise UnknownSchemaError(f"Avro schema: {one_line(error)}") from None
    if reason := why_unbounded(Schema(parsed, named)):
        raise UnknownSchemaError(f"Avro schema: {reason}: its values have no bound")
    bound_decimals()

    def decode(payload: memoryview) -> Any:
        source = io.BytesIO(payload)
        try:
            found = fastavro.schemaless_reader(source, parsed, None)
        except Exception as error:  # noqa: BLE001 - whatever bytes do in it
            raise ValueError(f"not of its Avro schema: {one_line(error)}") from None
        if source.tell() != len(payload):
            raise ValueError(f"{len(payload) - source.tell()} bytes after the Avro value")
        return _plain(found)

    return decode


def _plain(found: Any) -> Any:
    """Return a value without UUIDs, which pyarrow does not take, and sets of names."""
    if isinstance(found, dict):
        return {name: _plain(value) for name, value in found.items()}
    if isinstance(found, list):
        return [_plain(value) for value in found]
    return str(found) if isinstance(found, UUID) else found


# -- JSON Schema --------------------------------------------------------------------------------


def _json(schema: RegisteredSchema) -> Decode:
    from jsonschema import SchemaError
    from jsonschema.exceptions import best_match
    from jsonschema.validators import validator_for
    from referencing import Registry, Resource
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT7

    try:
        root = json.loads(schema.text)
        kind = validator_for(root)
        kind.check_schema(root)
        others = [
            (name, Resource.from_contents(json.loads(other.text), default_specification=DRAFT7))
            for name, other in schema.references
        ]
    except (SchemaError, ValueError, TypeError) as error:
        raise UnknownSchemaError(f"JSON Schema: {one_line(error)}") from None
    validator = kind(root, registry=Registry().with_resources(others))

    def decode(payload: memoryview) -> Any:
        found = json.loads(bytes(payload))
        try:
            error = best_match(validator.iter_errors(found))
        except (Unresolvable, RecursionError) as unresolved:
            raise ValueError(f"its JSON Schema: {one_line(unresolved)}") from None
        if error is not None:
            raise ValueError(f"not of its JSON Schema: {error.json_path}: {error.message}"[:500])
        return found

    return decode


# -- Protobuf -----------------------------------------------------------------------------------


def _protobuf(schema: RegisteredSchema) -> Decode:
    from google.protobuf import descriptor_pool, message_factory
    from google.protobuf.message import DecodeError

    pool = descriptor_pool.DescriptorPool()
    _add_well_known(pool)
    for name, other in schema.references:
        _add(pool, other, name)
    root = _add(pool, schema, "schema.proto")
    classes: dict[tuple[int, ...], Any] = {}

    def decode(payload: memoryview) -> Any:
        indexes, at = message_indexes(payload)
        made = classes.get(indexes)
        if made is None:
            try:
                types = list(root.message_types_by_name.values())
                kind = types[indexes[0]]
                for index in indexes[1:]:
                    kind = kind.nested_types[index]
            except IndexError:
                raise ValueError(f"its Protobuf schema has no message {list(indexes)}") from None
            made = classes[indexes] = message_factory.GetMessageClass(kind)
        try:
            return _values(made.FromString(bytes(payload[at:])))
        except DecodeError as error:
            raise ValueError(f"not of its Protobuf schema: {one_line(error)}") from None

    return decode


def message_indexes(payload: memoryview) -> tuple[tuple[int, ...], int]:
    """Read which message of a .proto file a value is, and where it begins; ValueError.

    Confluent's `MessageIndexes`: zigzag varints, how many and which; a single 0 is the first one.
    """
    count, at = _varint(payload, 0)
    if not 0 <= count <= 100:
        raise ValueError(f"{count} is no number of Protobuf message indexes")
    indexes = []
    for _ in range(count):
        index, at = _varint(payload, at)
        if index < 0:
            raise ValueError(f"{index} is no Protobuf message index")
        indexes.append(index)
    return tuple(indexes) or (0,), at


def _varint(payload: memoryview, at: int) -> tuple[int, int]:
    found = shift = 0
    while True:
        if at >= len(payload) or shift > 28:
            raise ValueError("the Protobuf message indexes are cut off")
        byte = payload[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), at
        shift += 7


def _add(pool: Any, schema: RegisteredSchema, name: str) -> Any:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        file = FileDescriptorProto.FromString(base64.b64decode(schema.text, validate=True))
    except (binascii.Error, DecodeError, ValueError):
        raise UnknownSchemaError(
            "the registry gives a .proto file, not its descriptor (format=serialized)"
        ) from None
    file.name = name
    try:
        pool.Add(file)
        return pool.FindFileByName(name)
    except (TypeError, KeyError) as error:
        raise UnknownSchemaError(f"Protobuf schema: {one_line(error)}") from None


def _add_well_known(pool: Any) -> None:
    """Add what .proto files import without registering it."""
    from google.protobuf import (
        any_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    modules = (
        any_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2
    )  # fmt: skip
    for module in modules:
        pool.Add(FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb))


def _values(message: Any) -> Any:
    """Return a message as a dict: a field without presence has its default, another None."""
    kind = message.DESCRIPTOR
    if kind.full_name == "google.protobuf.Timestamp":
        from datetime import UTC, datetime, timedelta

        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(
            seconds=message.seconds, microseconds=message.nanos // 1000
        )
    if kind.file.name == "google/protobuf/wrappers.proto":
        return message.value
    return {one.name: _field(message, one) for one in kind.fields}


def _field(message: Any, one: Any) -> Any:
    if one.is_repeated:
        found = getattr(message, one.name)
        if one.message_type is not None and one.message_type.GetOptions().map_entry:
            value = one.message_type.fields_by_name["value"]
            return {key: _single(found[key], value) for key in found}
        return [_single(each, one) for each in found]
    if one.has_presence and not message.HasField(one.name):
        return None
    return _single(getattr(message, one.name), one)


def _single(found: Any, one: Any) -> Any:
    if one.message_type is not None:
        return _values(found)
    if one.enum_type is not None:
        known = one.enum_type.values_by_number.get(found)
        return str(found) if known is None else known.name
    return found
