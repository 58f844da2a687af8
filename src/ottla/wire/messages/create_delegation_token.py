"""CreateDelegationToken (key 38): issue a delegation token.

Kafka's CreateDelegationTokenRequest and CreateDelegationTokenResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
CreateDelegationTokenRequest (key 38, versions 0-3, flexible 2+) =
    owner_principal_type:string@3+? owner_principal_name:string@3+? renewers:[]CreatableRenewers
    max_lifetime_ms:int64
CreatableRenewers = principal_type:string principal_name:string

CreateDelegationTokenResponse (key 38, versions 0-3, flexible 2+) =
    error_code:int16 principal_type:string principal_name:string
    token_requester_principal_type:string@3+ token_requester_principal_name:string@3+
    issue_timestamp_ms:int64 expiry_timestamp_ms:int64 max_timestamp_ms:int64 token_id:string
    hmac:bytes throttle_time_ms:int32
"""

CreateDelegationTokenRequest, CreateDelegationTokenResponse = load(SCHEMA, __name__)
