"""Heartbeat (key 12): a member says it is alive and learns of rebalances.

Kafka's HeartbeatRequest and HeartbeatResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
HeartbeatRequest (key 12, versions 0-4, flexible 4+) =
    group_id:string generation_id:int32 member_id:string group_instance_id:string@3+?=null

HeartbeatResponse (key 12, versions 0-4, flexible 4+) = throttle_time_ms:int32@1+~ error_code:int16
"""

HeartbeatRequest, HeartbeatResponse = load(SCHEMA, __name__)
