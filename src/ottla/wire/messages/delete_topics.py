"""DeleteTopics (key 20): remove topics by name or id.

Kafka's DeleteTopicsRequest and DeleteTopicsResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
DeleteTopicsRequest (key 20, versions 0-6, flexible 4+) =
    topics:[]DeleteTopicState@6+ topic_names:[]string@0-5~ timeout_ms:int32
DeleteTopicState = name:string@6+?=null topic_id:uuid@6+

DeleteTopicsResponse (key 20, versions 0-6, flexible 4+) =
    throttle_time_ms:int32@1+~ responses:[]DeletableTopicResult
DeletableTopicResult =
    name:string?6+ topic_id:uuid@6+~ error_code:int16 error_message:string@5+?=null~
"""

DeleteTopicsRequest, DeleteTopicsResponse = load(SCHEMA, __name__)
