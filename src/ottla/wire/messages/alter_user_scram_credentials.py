"""AlterUserScramCredentials (key 51): set or remove SCRAM credentials.

Kafka's AlterUserScramCredentialsRequest and AlterUserScramCredentialsResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
AlterUserScramCredentialsRequest (key 51, versions 0-0, flexible 0+) =
    deletions:[]ScramCredentialDeletion upsertions:[]ScramCredentialUpsertion
ScramCredentialDeletion = name:string mechanism:int8
ScramCredentialUpsertion =
    name:string mechanism:int8 iterations:int32 salt:bytes salted_password:bytes

AlterUserScramCredentialsResponse (key 51, versions 0-0, flexible 0+) =
    throttle_time_ms:int32 results:[]AlterUserScramCredentialsResult
AlterUserScramCredentialsResult = user:string error_code:int16 error_message:string?
"""

AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse = load(SCHEMA, __name__)
