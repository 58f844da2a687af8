"""Requests of consumer groups: to find their coordinator, of members, for offsets, about groups."""
