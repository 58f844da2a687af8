"""Envelope (key 58): a request forwarded to the controller with its sender's principal.

Kafka's EnvelopeRequest and EnvelopeResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
EnvelopeRequest (key 58, versions 0-0, flexible 0+) =
    request_data:bytes request_principal:bytes? client_host_address:bytes

EnvelopeResponse (key 58, versions 0-0, flexible 0+) = response_data:bytes?=null error_code:int16
"""

EnvelopeRequest, EnvelopeResponse = load(SCHEMA, __name__)
