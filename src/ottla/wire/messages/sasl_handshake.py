"""SaslHandshake (key 17): a client names its SASL mechanism.

Kafka's SaslHandshakeRequest and SaslHandshakeResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
SaslHandshakeRequest (key 17, versions 0-1) = mechanism:string

SaslHandshakeResponse (key 17, versions 0-1) = error_code:int16 mechanisms:[]string
"""

SaslHandshakeRequest, SaslHandshakeResponse = load(SCHEMA, __name__)
