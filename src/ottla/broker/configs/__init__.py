"""Configs: settings of topics and of this broker, which change while it runs."""
