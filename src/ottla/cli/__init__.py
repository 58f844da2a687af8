"""The command line: what commands print, and how."""
