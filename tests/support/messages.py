"""Protobuf messages made here, without a compiler."""

from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto


def message(name: str, package: str = "tests", **fields: str) -> Any:
    """Return the class of a message with these fields: their names with their scalar types.

    A type with `?` has presence, one with `[]` is repeated.
    """
    file = FileDescriptorProto(name=f"{name.lower()}.proto", package=package, syntax="proto3")
    kind = file.message_type.add(name=name)
    for number, (field, type_) in enumerate(fields.items(), 1):
        plain = type_.rstrip("?[]")
        one = kind.field.add(
            name=field, number=number, type=getattr(FieldDescriptorProto, f"TYPE_{plain.upper()}")
        )
        one.label = one.LABEL_REPEATED if type_.endswith("[]") else one.LABEL_OPTIONAL
        if type_.endswith("?"):
            one.proto3_optional = True
            one.oneof_index = len(kind.oneof_decl)
            kind.oneof_decl.add(name=f"_{field}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
