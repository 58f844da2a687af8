"""ListGroups (key 16): the groups a broker coordinates.

Kafka's ListGroupsRequest and ListGroupsResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
ListGroupsRequest (key 16, versions 0-5, flexible 3+) =
    states_filter:[]string@4+ types_filter:[]string@5+

ListGroupsResponse (key 16, versions 0-5, flexible 3+) =
    throttle_time_ms:int32@1+~ error_code:int16 groups:[]ListedGroup
ListedGroup = group_id:string protocol_type:string group_state:string@4+~ group_type:string@5+~
"""

ListGroupsRequest, ListGroupsResponse = load(SCHEMA, __name__)
