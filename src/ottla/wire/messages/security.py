"""Who a client is and what it may do: SASL, ACLs, delegation tokens, SCRAM users."""

from ottla.wire.schema import made_at_first_use

SCHEMA = """
# A client names its SASL mechanism.
SaslHandshakeRequest (key 17, versions 0-1) = mechanism:string

SaslHandshakeResponse (key 17, versions 0-1) = error_code:int16 mechanisms:[]string

# One step of a SASL exchange.
SaslAuthenticateRequest (key 36, versions 0-2, flexible 2+) = auth_bytes:bytes

SaslAuthenticateResponse (key 36, versions 0-2, flexible 2+) =
    error_code:int16 error_message:string? auth_bytes:bytes session_lifetime_ms:int64@1+~

# List access rules.
DescribeAclsRequest (key 29, versions 0-3, flexible 2+) =
    resource_type_filter:int8 resource_name_filter:string? pattern_type_filter:int8@1+=3
    principal_filter:string? host_filter:string? operation:int8 permission_type:int8

DescribeAclsResponse (key 29, versions 0-3, flexible 2+) =
    throttle_time_ms:int32 error_code:int16 error_message:string?
    resources:[]DescribeAclsResource
DescribeAclsResource =
    resource_type:int8 resource_name:string pattern_type:int8@1+=3 acls:[]AclDescription
AclDescription = principal:string host:string operation:int8 permission_type:int8

# Add access rules.
CreateAclsRequest (key 30, versions 0-3, flexible 2+) = creations:[]AclCreation
AclCreation =
    resource_type:int8 resource_name:string resource_pattern_type:int8@1+=3 principal:string
    host:string operation:int8 permission_type:int8

CreateAclsResponse (key 30, versions 0-3, flexible 2+) =
    throttle_time_ms:int32 results:[]AclCreationResult
AclCreationResult = error_code:int16 error_message:string?

# Remove access rules.
DeleteAclsRequest (key 31, versions 0-3, flexible 2+) = filters:[]DeleteAclsFilter
DeleteAclsFilter =
    resource_type_filter:int8 resource_name_filter:string? pattern_type_filter:int8@1+=3
    principal_filter:string? host_filter:string? operation:int8 permission_type:int8

DeleteAclsResponse (key 31, versions 0-3, flexible 2+) =
    throttle_time_ms:int32 filter_results:[]DeleteAclsFilterResult
DeleteAclsFilterResult =
    error_code:int16 error_message:string? matching_acls:[]DeleteAclsMatchingAcl
DeleteAclsMatchingAcl =
    error_code:int16 error_message:string? resource_type:int8 resource_name:string
    pattern_type:int8@1+=3 principal:string host:string operation:int8 permission_type:int8

# Issue a delegation token.
CreateDelegationTokenRequest (key 38, versions 0-3, flexible 2+) =
    owner_principal_type:string@3+? owner_principal_name:string@3+? renewers:[]CreatableRenewers
    max_lifetime_ms:int64
CreatableRenewers = principal_type:string principal_name:string

CreateDelegationTokenResponse (key 38, versions 0-3, flexible 2+) =
    error_code:int16 principal_type:string principal_name:string
    token_requester_principal_type:string@3+ token_requester_principal_name:string@3+
    issue_timestamp_ms:int64 expiry_timestamp_ms:int64 max_timestamp_ms:int64 token_id:string
    hmac:bytes throttle_time_ms:int32

# Prolong a delegation token.
RenewDelegationTokenRequest (key 39, versions 0-2, flexible 2+) = hmac:bytes renew_period_ms:int64

RenewDelegationTokenResponse (key 39, versions 0-2, flexible 2+) =
    error_code:int16 expiry_timestamp_ms:int64 throttle_time_ms:int32

# End a delegation token.
ExpireDelegationTokenRequest (key 40, versions 0-2, flexible 2+) =
    hmac:bytes expiry_time_period_ms:int64

ExpireDelegationTokenResponse (key 40, versions 0-2, flexible 2+) =
    error_code:int16 expiry_timestamp_ms:int64 throttle_time_ms:int32

# List delegation tokens.
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

# Users with SCRAM credentials.
DescribeUserScramCredentialsRequest (key 50, versions 0-0, flexible 0+) = users:[]UserName?
UserName = name:string

DescribeUserScramCredentialsResponse (key 50, versions 0-0, flexible 0+) =
    throttle_time_ms:int32 error_code:int16 error_message:string?
    results:[]DescribeUserScramCredentialsResult
DescribeUserScramCredentialsResult =
    user:string error_code:int16 error_message:string? credential_infos:[]CredentialInfo
CredentialInfo = mechanism:int8 iterations:int32

# Set or remove SCRAM credentials.
AlterUserScramCredentialsRequest (key 51, versions 0-0, flexible 0+) =
    deletions:[]ScramCredentialDeletion upsertions:[]ScramCredentialUpsertion
ScramCredentialDeletion = name:string mechanism:int8
ScramCredentialUpsertion =
    name:string mechanism:int8 iterations:int32 salt:bytes salted_password:bytes

AlterUserScramCredentialsResponse (key 51, versions 0-0, flexible 0+) =
    throttle_time_ms:int32 results:[]AlterUserScramCredentialsResult
AlterUserScramCredentialsResult = user:string error_code:int16 error_message:string?
"""

__getattr__ = made_at_first_use(SCHEMA, __name__)
