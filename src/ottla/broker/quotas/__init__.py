"""Quotas: what clients may use of this broker, and where it is set."""
