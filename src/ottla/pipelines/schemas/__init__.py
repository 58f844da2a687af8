"""Values in Confluent's wire format: a schema's id, then Avro, JSON or Protobuf.

`registry` asks a schema registry, `decoding` makes a decoder of a schema by its own library
(fastavro, jsonschema, protobuf), `decoder` decodes values one batch after the other, and `columns`
is that for Spark.
"""

from ottla.pipelines.schemas.columns import from_registry
from ottla.pipelines.schemas.decoder import Decoded, RegistryDecoder
from ottla.pipelines.schemas.registry import RegistrySettings

__all__ = ["Decoded", "RegistryDecoder", "RegistrySettings", "from_registry"]
