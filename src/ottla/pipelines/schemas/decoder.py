"""Values of a topic to Python values, batch after batch, by the schemas that they name.

Invariants: each value gives a row or an error, in order; one bad record never costs another; a
registry that cannot be asked is no error of a record, it is raised. Confluent's wire format: a byte
0, the schema's id in four bytes, the payload.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ottla.pipelines.schemas.decoding import Decode, decoder_of, one_line
from ottla.pipelines.schemas.registry import (
    RegistryClient,
    RegistrySettings,
    UnknownSchemaError,
)

HEADER_BYTES = 5
MOST_DECODERS = 1000


class Decoded(NamedTuple):
    """Of each value what it is, or why not; a null is a row of None without an error."""

    rows: list[Any]
    errors: list[str | None]

    @property
    def failed(self) -> int:
        return sum(error is not None for error in self.errors)


class RegistryDecoder:
    """Decodes values; keeps the schemas it met. Can be pickled, and is used by one thread.

    `settings` by Confluent's names: `schema.registry.url`, `basic.auth.user.info` and
    `schema.registry.timeout.ms`; ConfigError for what is wrong with them.
    """

    def __init__(self, settings: Mapping[str, str] | RegistrySettings) -> None:
        if not isinstance(settings, RegistrySettings):
            settings = RegistrySettings.of(settings)
        self.settings = settings
        self._start()

    def _start(self) -> None:
        self._client = RegistryClient(self.settings)
        self._decoders: dict[int, Decode] = {}

    def __getstate__(self) -> RegistrySettings:
        return self.settings

    def __setstate__(self, settings: RegistrySettings) -> None:
        self.settings = settings
        self._start()

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """Decode values; ConnectionLostError or ConfigError if the registry cannot be asked."""
        rows: list[Any] = []
        errors: list[str | None] = []
        for value in values:
            row = error = None
            if value is not None:
                try:
                    row = self._decode(memoryview(value))
                except (UnknownSchemaError, ValueError, RecursionError) as caught:
                    error = one_line(caught)
            rows.append(row)
            errors.append(error)
        return Decoded(rows, errors)

    def _decode(self, value: memoryview) -> Any:
        if len(value) < HEADER_BYTES or value[0] != 0:
            raise ValueError("not in a registry's wire format: no byte 0 with a schema's id")
        schema_id = int.from_bytes(value[1:HEADER_BYTES], "big")
        decode = self._decoders.get(schema_id)
        if decode is None:
            decode = decoder_of(self._client.schema(schema_id))
            if len(self._decoders) >= MOST_DECODERS:
                self._decoders.clear()
            self._decoders[schema_id] = decode
        return decode(value[HEADER_BYTES:])
