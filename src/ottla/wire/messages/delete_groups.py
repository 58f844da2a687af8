"""DeleteGroups (key 42): remove empty groups.

Kafka's DeleteGroupsRequest and DeleteGroupsResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
DeleteGroupsRequest (key 42, versions 0-2, flexible 2+) = groups_names:[]string

DeleteGroupsResponse (key 42, versions 0-2, flexible 2+) =
    throttle_time_ms:int32 results:[]DeletableGroupResult
DeletableGroupResult = group_id:string error_code:int16
"""

DeleteGroupsRequest, DeleteGroupsResponse = load(SCHEMA, __name__)
