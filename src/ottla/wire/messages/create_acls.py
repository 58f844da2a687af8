"""CreateAcls (key 30): add access rules.

Kafka's CreateAclsRequest and CreateAclsResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
CreateAclsRequest (key 30, versions 0-3, flexible 2+) = creations:[]AclCreation
AclCreation =
    resource_type:int8 resource_name:string resource_pattern_type:int8@1+=3 principal:string
    host:string operation:int8 permission_type:int8

CreateAclsResponse (key 30, versions 0-3, flexible 2+) =
    throttle_time_ms:int32 results:[]AclCreationResult
AclCreationResult = error_code:int16 error_message:string?
"""

CreateAclsRequest, CreateAclsResponse = load(SCHEMA, __name__)
