"""DescribeAcls (key 29): list access rules.

Kafka's DescribeAclsRequest and DescribeAclsResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
DescribeAclsRequest (key 29, versions 0-3, flexible 2+) =
    resource_type_filter:int8 resource_name_filter:string? pattern_type_filter:int8@1+=3
    principal_filter:string? host_filter:string? operation:int8 permission_type:int8

DescribeAclsResponse (key 29, versions 0-3, flexible 2+) =
    throttle_time_ms:int32 error_code:int16 error_message:string?
    resources:[]DescribeAclsResource
DescribeAclsResource =
    resource_type:int8 resource_name:string pattern_type:int8@1+=3 acls:[]AclDescription
AclDescription = principal:string host:string operation:int8 permission_type:int8
"""

DescribeAclsRequest, DescribeAclsResponse = load(SCHEMA, __name__)
