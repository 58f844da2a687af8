"""Requests of security: access rules, users and tokens."""
