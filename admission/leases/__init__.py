"""What several sidecars share by one Redis: tenants' quotas and the retry budget, by leases."""
