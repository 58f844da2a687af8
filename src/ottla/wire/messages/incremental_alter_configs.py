"""IncrementalAlterConfigs (key 44): change single settings of a resource.

Kafka's IncrementalAlterConfigsRequest and IncrementalAlterConfigsResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
IncrementalAlterConfigsRequest (key 44, versions 0-1, flexible 1+) =
    resources:[]AlterConfigsResource validate_only:bool
AlterConfigsResource = resource_type:int8 resource_name:string configs:[]AlterableConfig
AlterableConfig = name:string config_operation:int8 value:string?

IncrementalAlterConfigsResponse (key 44, versions 0-1, flexible 1+) =
    throttle_time_ms:int32 responses:[]AlterConfigsResourceResponse
AlterConfigsResourceResponse =
    error_code:int16 error_message:string? resource_type:int8 resource_name:string
"""

IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse = load(SCHEMA, __name__)
