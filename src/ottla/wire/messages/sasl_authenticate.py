"""SaslAuthenticate (key 36): one step of a SASL exchange.

Kafka's SaslAuthenticateRequest and SaslAuthenticateResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
SaslAuthenticateRequest (key 36, versions 0-2, flexible 2+) = auth_bytes:bytes

SaslAuthenticateResponse (key 36, versions 0-2, flexible 2+) =
    error_code:int16 error_message:string? auth_bytes:bytes session_lifetime_ms:int64@1+~
"""

SaslAuthenticateRequest, SaslAuthenticateResponse = load(SCHEMA, __name__)
