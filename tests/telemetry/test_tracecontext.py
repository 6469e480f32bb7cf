"""Trace context by the letter of W3C's recommendation, and a share that all services agree on."""

import random

import pytest

from surgetank.telemetry.tracecontext import (
    Parent,
    SpanId,
    TraceContext,
    in_share,
    parse_traceparent,
    parse_tracestate,
)

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize(
    ("text", "sampled"),
    [
        (f"00-{TRACE}-{SPAN}-01", True),
        (f"00-{TRACE}-{SPAN}-00", False),
        (f"00-{TRACE}-{SPAN}-02", False),  # the random flag alone
        (f"00-{TRACE}-{SPAN}-ff", True),
        (f"cc-{TRACE}-{SPAN}-01", True),  # a later version
        (f"cc-{TRACE}-{SPAN}-01-what-it-may-bring", True),
    ],
)
def test_a_parent_is_read(text: str, sampled: bool) -> None:
    assert parse_traceparent(text) == Parent(SpanId(TRACE, SPAN), sampled)


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",  # this version has no more
        f"00-{TRACE}-{SPAN}-01-",
        f"cc-{TRACE}-{SPAN}-01.more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[:-1]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-0١",
        f" 00-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\n",
    ],
)
def test_anything_else_is_no_parent(text: str) -> None:
    assert parse_traceparent(text) is None


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("congo=t61rcWkgMzE", "congo=t61rcWkgMzE"),
        ("a=1 , b@c=2,,", "a=1,b@c=2"),
        ("", ""),
        ("a=1,a=2", None),
        ("A=1", None),
        ("a", None),
        ("a=b=c", None),
        ("a=ü", None),
        (",".join(f"k{i}=v" for i in range(33)), None),
        ("a=" + "x" * 256, "a=" + "x" * 256),
        ("a=" + "x" * 257, None),
        ("a=" + "x" * 255 + ",b=" + "y" * 255, None),
    ],
)
def test_a_state_is_kept_whole_or_not_at_all(text: str, state: str | None) -> None:
    assert parse_tracestate(text) == state


@pytest.mark.parametrize(("sampled", "flags"), [(True, "01"), (False, "00")])
def test_the_next_service_is_told_once(sampled: bool, flags: str) -> None:
    caller = Parent(SpanId(TRACE, SPAN), True, "a=1")
    context = TraceContext(SpanId(TRACE, "1" * 16), caller, sampled)
    given = [("traceparent", "x"), ("accept", "*/*"), ("tracestate", "y")]
    assert context.passed_on(given) == (
        ("accept", "*/*"),
        ("traceparent", f"00-{TRACE}-{'1' * 16}-{flags}"),
        ("tracestate", "a=1"),
    )
    assert TraceContext(SpanId(TRACE, SPAN)).passed_on([]) == (
        ("traceparent", f"00-{TRACE}-{SPAN}-00"),
    )


def test_a_share_is_of_the_ids_lower_half() -> None:
    assert not in_share("f" * 16 + "0" * 15 + "1", 0)
    assert in_share("f" * 32, 1)
    assert in_share("f" * 16 + "7" + "f" * 15, 0.5)
    assert not in_share("0" * 16 + "8" + "0" * 15, 0.5)


def test_a_share_is_that_share() -> None:
    rng = random.Random(3)
    kept = sum(in_share(f"{rng.getrandbits(128):032x}", 0.1) for _ in range(10_000))
    assert 900 < kept < 1100
