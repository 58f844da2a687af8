"""AlterClientQuotas (key 49): set or remove quotas.

Kafka's AlterClientQuotasRequest and AlterClientQuotasResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
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

AlterClientQuotasRequest, AlterClientQuotasResponse = load(SCHEMA, __name__)
