"""DescribeDelegationToken (key 41): list delegation tokens.

Kafka's DescribeDelegationTokenRequest and DescribeDelegationTokenResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
DescribeDelegationTokenRequest (key 41, versions 0-3, flexible 2+) =
    owners:[]DescribeDelegationTokenOwner?
DescribeDelegationTokenOwner = principal_type:string principal_name:string

DescribeDelegationTokenResponse (key 41, versions 0-3, flexible 2+) =
    error_code:int16 tokens:[]DescribedDelegationToken throttle_time_ms:int32
DescribedDelegationToken =
    principal_type:string principal_name:string token_requester_principal_type:string@3+
    token_requester_principal_name:string@3+ issue_timestamp:int64 expiry_timestamp:int64
    max_timestamp:int64 token_id:string hmac:bytes renewers:[]DescribedDelegationTokenRenewer
DescribedDelegationTokenRenewer = principal_type:string principal_name:string
"""

DescribeDelegationTokenRequest, DescribeDelegationTokenResponse = load(SCHEMA, __name__)
