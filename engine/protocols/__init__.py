"""Protocols of other makers' engines, as messages: spoken by a door of ours, and to them.

The `_pb2` files are generated from the `.proto` files as those of the gRPC door are from theirs
(see admission/doors/grpc) and committed.
"""
