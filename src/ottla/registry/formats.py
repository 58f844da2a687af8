"""Avro, JSON Schema and Protobuf: what is a schema, which are the same, which are compatible.

By kept libraries: `avro` (Apache's, with its rules of schema resolution), `jsonschema`, and
`protobuf`, with the compiler of `grpcio-tools` where it is installed. Invariant: nothing here
remembers anything. Compatibility is checked for Avro; JSON Schema and Protobuf are taken as they
are, as with level NONE.
"""

import base64
import binascii
import json
import tempfile
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from ottla.registry.failures import RegistryError, invalid_schema
from ottla.registry.state import AVRO, JSON, PROTOBUF, Schema, Version

LEVELS = (
    "NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL",
    "FULL_TRANSITIVE",
)  # fmt: skip
Resolved = tuple[tuple[str, str], ...]
"""Names and texts of what a schema refers to, those first that others refer to."""


def checked(schema: Schema, references: Resolved) -> Schema:
    """Return a schema as it is kept; RegistryError if it is none."""
    check = {AVRO: _checked_avro, JSON: _checked_json, PROTOBUF: _checked_protobuf}.get(schema.kind)
    if check is None:
        raise RegistryError(422, f"Invalid schema type {schema.kind}")
    return Schema(schema.kind, check(schema.text, references), schema.references)


@lru_cache(maxsize=10_000)
def identity(schema: Schema, references: Resolved = ()) -> tuple[object, ...]:
    """Return what two schemas have in common if they are the same one."""
    text: object = schema.text
    if schema.kind != PROTOBUF:
        text = json.dumps(json.loads(schema.text), sort_keys=True)
    elif (compiled := _compiled(schema.text, references)) is not None:
        text = compiled
    return schema.kind, text, schema.references


def problems(
    level: str,
    schema: Schema,
    earlier: Sequence[Version],
    resolve: Callable[[Schema], Resolved],
) -> list[str]:
    """Return why a schema is not compatible with earlier ones, the newest last; [] if it is."""
    if level == "NONE" or not earlier:
        return []
    others = earlier if level.endswith("_TRANSITIVE") else earlier[-1:]
    found = []
    for one in reversed(others):
        if one.schema.kind != schema.kind:
            return [f"version {one.version} is {one.schema.kind}, not {schema.kind}"]
        if schema.kind != AVRO:
            continue
        new = _avro(schema.text, resolve(schema))
        old = _avro(one.schema.text, resolve(one.schema))
        pairs = []
        if level.startswith(("BACKWARD", "FULL")):
            pairs.append(("read what version {} wrote", new, old))
        if level.startswith(("FORWARD", "FULL")):
            pairs.append(("be read with version {}", old, new))
        for what, reader, writer in pairs:
            why = _unreadable(reader, writer)
            if why:
                found.append(f"it cannot {what.format(one.version)}: {why}")
    return found


# -- Avro ---------------------------------------------------------------------------------------


def _avro(text: str, references: Resolved) -> Any:
    from avro.errors import AvroException
    from avro.name import Names
    from avro.schema import make_avsc_object

    names = Names()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of logical types that it does not know
            for _, other in references:
                make_avsc_object(json.loads(other), names)
            return make_avsc_object(json.loads(text), names)
    except (AvroException, ValueError, TypeError, AttributeError, KeyError) as error:
        raise invalid_schema(error) from None


def _checked_avro(text: str, references: Resolved) -> str:
    _avro(text, references)
    return json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False)


def _unreadable(reader: Any, writer: Any) -> str:
    from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType

    checker: Any = ReaderWriterCompatibilityChecker  # not typed
    result = checker().get_compatibility(reader, writer)
    if result.compatibility is SchemaCompatibilityType.compatible:
        return ""
    return f"{'; '.join(sorted(result.messages))} at {', '.join(sorted(result.locations))}"


# -- JSON Schema --------------------------------------------------------------------------------


def _checked_json(text: str, references: Resolved) -> str:
    from jsonschema import SchemaError
    from jsonschema.validators import validator_for

    del references
    try:
        schema = json.loads(text)
        validator_for(schema).check_schema(schema)
    except SchemaError as error:
        raise invalid_schema(error.message) from None
    except (ValueError, TypeError) as error:
        raise invalid_schema(error) from None
    return json.dumps(schema, separators=(",", ":"), ensure_ascii=False)


# -- Protobuf -----------------------------------------------------------------------------------


def _checked_protobuf(text: str, references: Resolved) -> str:
    if _compiled(text, references) is None and "message" not in text and "enum" not in text:
        raise invalid_schema("neither a .proto file nor a FileDescriptorProto in base64")
    return text


def serialized(text: str, references: Resolved) -> str:
    """Return a schema as a FileDescriptorProto in base64, as `format=serialized` asks for it."""
    found = _descriptor(text, references)
    if found is None:
        raise RegistryError(
            42201, "format serialized: a .proto file is compiled by grpcio-tools; install it"
        )
    return base64.b64encode(found.SerializeToString()).decode("ascii")


def _descriptor(text: str, references: Resolved) -> Any:
    """Return a FileDescriptorProto; None for a text where there is no compiler."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        return FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, DecodeError, ValueError):
        compiled = compile_proto(text, references)
        return None if compiled is None else FileDescriptorProto.FromString(compiled)


def _compiled(text: str, references: Resolved) -> bytes | None:
    """Return what of a FileDescriptorProto says whether two are the same."""
    found = _descriptor(text, references)
    if found is None:
        return None
    found.ClearField("name")
    found.ClearField("source_code_info")
    for message in found.message_type:  # the compiler writes what serializers leave out
        for one in message.field:
            one.ClearField("json_name")
    return bytes(found.SerializeToString(deterministic=True))


def compile_proto(text: str, references: Iterable[tuple[str, str]]) -> bytes | None:
    """Compile a .proto file; RegistryError if it is none, None without grpcio-tools."""
    try:
        import grpc_tools  # noqa: F401 - whether it is there
    except ImportError:
        return None
    import importlib.resources
    import subprocess
    import sys

    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    with tempfile.TemporaryDirectory() as folder:
        for name, other in [*references, ("schema.proto", text)]:
            file = (Path(folder) / name).resolve()
            if not file.is_relative_to(Path(folder).resolve()):
                raise invalid_schema(f"{name!r} is not a file name")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(other, encoding="utf-8")
        known = importlib.resources.files("grpc_tools") / "_proto"
        command = [sys.executable, "-P", "-m", "grpc_tools.protoc", f"-I{folder}", f"-I{known}",
                   f"--descriptor_set_out={folder}/out", "schema.proto"]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)  # noqa: S603
        if done.returncode:
            raise invalid_schema(done.stderr.replace(f"{folder}/", ""))
        found = FileDescriptorSet.FromString((Path(folder) / "out").read_bytes())
    return bytes(found.file[-1].SerializeToString())
