"""DescribeClientQuotas (key 48): quotas that match a filter.

Kafka's DescribeClientQuotasRequest and DescribeClientQuotasResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
DescribeClientQuotasRequest (key 48, versions 0-1, flexible 1+) =
    components:[]ComponentData strict:bool
ComponentData = entity_type:string match_type:int8 match:string?

DescribeClientQuotasResponse (key 48, versions 0-1, flexible 1+) =
    throttle_time_ms:int32 error_code:int16 error_message:string? entries:[]EntryData?
EntryData = entity:[]EntityData values:[]ValueData
EntityData = entity_type:string entity_name:string?
ValueData = key:string value:float64
"""

DescribeClientQuotasRequest, DescribeClientQuotasResponse = load(SCHEMA, __name__)
