"""Requests of transactional and idempotent producers, of coordinators for markers, of operators."""
