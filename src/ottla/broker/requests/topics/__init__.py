"""Requests that change topics, replicas and leaders: the controller answers them, others refuse."""
