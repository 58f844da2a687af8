"""Requests of security: authentication, access rules, users and tokens."""
