"""Requests that change topics, replicas and leaders: the controller serves them, others refuse."""
