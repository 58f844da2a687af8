"""ExpireDelegationToken (key 40): end a delegation token.

Kafka's ExpireDelegationTokenRequest and ExpireDelegationTokenResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
ExpireDelegationTokenRequest (key 40, versions 0-2, flexible 2+) =
    hmac:bytes expiry_time_period_ms:int64

ExpireDelegationTokenResponse (key 40, versions 0-2, flexible 2+) =
    error_code:int16 expiry_timestamp_ms:int64 throttle_time_ms:int32
"""

ExpireDelegationTokenRequest, ExpireDelegationTokenResponse = load(SCHEMA, __name__)
