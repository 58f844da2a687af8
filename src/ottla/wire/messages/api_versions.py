"""ApiVersions (key 18): which keys and versions a broker serves.

Kafka's ApiVersionsRequest and ApiVersionsResponse.
"""

from ottla.wire.schema import load

SCHEMA = """
ApiVersionsRequest (key 18, versions 0-4, flexible 3+) =
    client_software_name:string@3+~ client_software_version:string@3+~

ApiVersionsResponse (key 18, versions 0-4, flexible 3+) =
    error_code:int16 api_keys:[]ApiVersion throttle_time_ms:int32@1+~
    supported_features:[]SupportedFeatureKey@3+#0~ finalized_features_epoch:int64@3+#1=-1~
    finalized_features:[]FinalizedFeatureKey@3+#2~ zk_migration_ready:bool@3+#3~
ApiVersion = api_key:int16 min_version:int16 max_version:int16
SupportedFeatureKey = name:string@3+ min_version:int16@3+ max_version:int16@3+
FinalizedFeatureKey = name:string@3+ max_version_level:int16@3+ min_version_level:int16@3+
"""

ApiVersionsRequest, ApiVersionsResponse = load(SCHEMA, __name__)
