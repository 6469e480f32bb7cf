"""Retries for those who call an overloaded service; needs nothing but the library each one wraps.

`tenacity_pair`, `grpc_aio`, `grpc_sync` and `httpx_transport` each import one library: take what
your client uses. They share one `Retrier` per client: its policy, its budget, its clock.
"""
