"""UpdateFeatures (key 57): finalize feature levels.

Kafka's UpdateFeaturesRequest and UpdateFeaturesResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
UpdateFeaturesRequest (key 57, versions 0-1, flexible 0+) =
    timeout_ms:int32=60000 feature_updates:[]FeatureUpdateKey validate_only:bool@1+
FeatureUpdateKey =
    feature:string max_version_level:int16 allow_downgrade:bool@0 upgrade_type:int8@1+=1

UpdateFeaturesResponse (key 57, versions 0-1, flexible 0+) =
    throttle_time_ms:int32 error_code:int16 error_message:string?
    results:[]UpdatableFeatureResult
UpdatableFeatureResult = feature:string error_code:int16 error_message:string?
"""

UpdateFeaturesRequest, UpdateFeaturesResponse = load(SCHEMA, __name__)
