"""RenewDelegationToken (key 39): prolong a delegation token.

Kafka's RenewDelegationTokenRequest and RenewDelegationTokenResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
RenewDelegationTokenRequest (key 39, versions 0-2, flexible 2+) = hmac:bytes renew_period_ms:int64

RenewDelegationTokenResponse (key 39, versions 0-2, flexible 2+) =
    error_code:int16 expiry_timestamp_ms:int64 throttle_time_ms:int32
"""

RenewDelegationTokenRequest, RenewDelegationTokenResponse = load(SCHEMA, __name__)
