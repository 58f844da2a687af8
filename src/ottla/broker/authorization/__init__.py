"""May this client do that? The cluster's ACLs on this broker, and the log of what was denied."""
