"""DescribeUserScramCredentials (key 50): users with SCRAM credentials.

Kafka's DescribeUserScramCredentialsRequest and DescribeUserScramCredentialsResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
DescribeUserScramCredentialsRequest (key 50, versions 0-0, flexible 0+) = users:[]UserName?
UserName = name:string

DescribeUserScramCredentialsResponse (key 50, versions 0-0, flexible 0+) =
    throttle_time_ms:int32 error_code:int16 error_message:string?
    results:[]DescribeUserScramCredentialsResult
DescribeUserScramCredentialsResult =
    user:string error_code:int16 error_message:string? credential_infos:[]CredentialInfo
CredentialInfo = mechanism:int8 iterations:int32
"""

DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse = load(SCHEMA, __name__)
