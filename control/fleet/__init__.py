"""What the sidecars of one fleet agree on: overrides, the policy, and who decides for all."""
