"""Metadata: what the controller sent this broker about the cluster, and responses made from it."""
