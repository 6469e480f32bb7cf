"""The limit of open files, raised as far as the system allows: a stream takes two of them."""

import resource

_UNLIMITED = 1 << 20


def raise_limit() -> int:
    """For this process and its children; how many it may have open now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return _UNLIMITED if hard == resource.RLIM_INFINITY else hard
