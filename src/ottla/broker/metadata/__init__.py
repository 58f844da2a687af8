"""Metadata: what the controller told this broker of the cluster, and answers made from it."""
