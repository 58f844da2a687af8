"""Requests for settings: of topics and brokers, and for the quotas of clients."""
