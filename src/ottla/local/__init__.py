"""The cluster of `ottla up` on this machine: its folder, its processes, start and stop."""
