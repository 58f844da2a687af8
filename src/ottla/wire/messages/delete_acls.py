"""DeleteAcls (key 31): remove access rules.

Kafka's DeleteAclsRequest and DeleteAclsResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
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
"""

DeleteAclsRequest, DeleteAclsResponse = load(SCHEMA, __name__)
