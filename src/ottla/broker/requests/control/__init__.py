"""Requests between brokers: from the controller to each broker, and from each to the controller."""
