"""Requests about the cluster and this broker: versions, metadata, features, log dirs."""
