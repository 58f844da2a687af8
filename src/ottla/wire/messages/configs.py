"""Settings of topics and brokers, and quotas of clients."""

from ottla.wire.schema import made_at_first_use

SCHEMA = """
# Settings of topics, brokers and loggers, with their sources.
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

# Replace the settings of a resource.
AlterConfigsRequest (key 33, versions 0-2, flexible 2+) =
    resources:[]AlterConfigsResource validate_only:bool
AlterConfigsResource = resource_type:int8 resource_name:string configs:[]AlterableConfig
AlterableConfig = name:string value:string?

AlterConfigsResponse (key 33, versions 0-2, flexible 2+) =
    throttle_time_ms:int32 responses:[]AlterConfigsResourceResponse
AlterConfigsResourceResponse =
    error_code:int16 error_message:string? resource_type:int8 resource_name:string

# Change single settings of a resource.
IncrementalAlterConfigsRequest (key 44, versions 0-1, flexible 1+) =
    resources:[]AlterConfigsResource validate_only:bool
AlterConfigsResource = resource_type:int8 resource_name:string configs:[]AlterableConfig
AlterableConfig = name:string config_operation:int8 value:string?

IncrementalAlterConfigsResponse (key 44, versions 0-1, flexible 1+) =
    throttle_time_ms:int32 responses:[]AlterConfigsResourceResponse
AlterConfigsResourceResponse =
    error_code:int16 error_message:string? resource_type:int8 resource_name:string

# Quotas that match a filter.
DescribeClientQuotasRequest (key 48, versions 0-1, flexible 1+) =
    components:[]ComponentData strict:bool
ComponentData = entity_type:string match_type:int8 match:string?

DescribeClientQuotasResponse (key 48, versions 0-1, flexible 1+) =
    throttle_time_ms:int32 error_code:int16 error_message:string? entries:[]EntryData?
EntryData = entity:[]EntityData values:[]ValueData
EntityData = entity_type:string entity_name:string?
ValueData = key:string value:float64

# Set or remove quotas.
AlterClientQuotasRequest (key 49, versions 0-1, flexible 1+) =
    entries:[]EntryData validate_only:bool
EntryData = entity:[]EntityData ops:[]OpData
EntityData = entity_type:string entity_name:string?
OpData = key:string value:float64 remove:bool

AlterClientQuotasResponse (key 49, versions 0-1, flexible 1+) =
    throttle_time_ms:int32 entries:[]EntryData
EntryData = error_code:int16 error_message:string? entity:[]EntityData
EntityData = entity_type:string entity_name:string?
"""

__getattr__ = made_at_first_use(SCHEMA, __name__)
