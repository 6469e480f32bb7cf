"""What the way through the sidecar costs, beside other proxies."""
