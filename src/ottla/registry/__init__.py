"""A small schema registry, for tests and for one machine: Confluent's REST API over a cluster.

State is in the compacted topic `_schemas`, in the keys and values that Confluent's registry writes
there, so that either can go on with what the other has written (one at a time: there is no election
among registries here). From the outside in: `server` (a socket), `application` (the REST API),
`operations` (what it does), `store` (the topic), `state` (what the topic says), `formats` (Avro,
JSON Schema and Protobuf by their own libraries).
"""

LIBRARIES = ("starlette", "uvicorn", "avro", "jsonschema", "google.protobuf")
"""What it needs besides the package: the extra `registry`."""
