"""The door that speaks vLLM's gRPC engine protocol, on the gRPC listener."""
