"""DescribeConfigs (key 32): settings of topics, brokers and loggers, with their sources.

Kafka's DescribeConfigsRequest and DescribeConfigsResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
DescribeConfigsRequest (key 32, versions 0-4, flexible 4+) =
    resources:[]DescribeConfigsResource include_synonyms:bool@1+ include_documentation:bool@3+
DescribeConfigsResource = resource_type:int8 resource_name:string configuration_keys:[]string?

DescribeConfigsResponse (key 32, versions 0-4, flexible 4+) =
    throttle_time_ms:int32 results:[]DescribeConfigsResult
DescribeConfigsResult =
    error_code:int16 error_message:string? resource_type:int8 resource_name:string
    configs:[]DescribeConfigsResourceResult
DescribeConfigsResourceResult =
    name:string value:string? read_only:bool is_default:bool@0 config_source:int8@1+=-1~
    is_sensitive:bool synonyms:[]DescribeConfigsSynonym@1+~ config_type:int8@3+~
    documentation:string@3+?~
DescribeConfigsSynonym = name:string@1+ value:string@1+? source:int8@1+
"""

DescribeConfigsRequest, DescribeConfigsResponse = load(SCHEMA, __name__)
