"""Behind Envoy: it carries the requests, and asks here whether and when each of them may go on.

`wire_pb2.py` and `wire_pb2.pyi` are generated from `wire.proto` as those of the gRPC door are from
theirs (see there), and committed.
"""
