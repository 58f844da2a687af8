"""AlterConfigs (key 33): replace the settings of a resource.

Kafka's AlterConfigsRequest and AlterConfigsResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
AlterConfigsRequest (key 33, versions 0-2, flexible 2+) =
    resources:[]AlterConfigsResource validate_only:bool
AlterConfigsResource = resource_type:int8 resource_name:string configs:[]AlterableConfig
AlterableConfig = name:string value:string?

AlterConfigsResponse (key 33, versions 0-2, flexible 2+) =
    throttle_time_ms:int32 responses:[]AlterConfigsResourceResponse
AlterConfigsResourceResponse =
    error_code:int16 error_message:string? resource_type:int8 resource_name:string
"""

AlterConfigsRequest, AlterConfigsResponse = load(SCHEMA, __name__)
