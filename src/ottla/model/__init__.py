"""The types that every room shares. Imports nothing of ours; no I/O but `durable_files`."""
