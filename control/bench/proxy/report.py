"""What the proxy bench says: rows, ratios beside the peers, and the bars they are held to."""

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from surgetank.control.bench.document import Table
from surgetank.control.bench.proxy.idle import STREAMS, Idle
from surgetank.control.bench.proxy.peers import ENVOY, NGINX
from surgetank.control.bench.proxy.side import Side
from surgetank.control.bench.proxy.slow import READERS, Slow

TOKEN, REQUEST = "CPU per streamed token", "CPU per request"
FIRST_P50 = "added p50 TTFT at half load"
FIRST_P99 = "added p99 TTFT at half load"
DELAY = "p99 delay of streams beside slow readers"
HELD = "memory for a slow reader"
MEMORY = f"memory of {STREAMS:,} idle streams"
GOALS = {(TOKEN, NGINX): 1.2, (TOKEN, ENVOY): 0.6, (REQUEST, NGINX): 2.5}
MILLISECOND, MEGABYTES = 1e-3, 400.0  # the bars that are no peer's figures


def rows_of(sides: Sequence[Side]) -> list[dict[str, Any]]:
    """Each proxy's own figures, seconds; `sides` begins with the direct way."""
    direct, *proxies = sides
    return [
        {
            "proxy": side.name,
            "cpu_per_request": statistics.median(side.requests),
            "cpu_per_token": statistics.median(side.tokens),
            "added_ttft_p50": side.added(direct, 50),
            "added_ttft_p99": side.added(direct, 99),
            "half_load": side.half_load,
            "slow_alone": _middle(side, lambda slow: slow.alone),
            "slow_beside": _middle(side, lambda slow: slow.beside),
            "slow_bytes": _middle(side, lambda slow: slow.bytes),
            "slow_caught_up": _middle(side, lambda slow: slow.caught_up),
        }
        for side in proxies
    ]


def ratios_of(sides: Sequence[Side], idle: Idle | None) -> list[dict[str, Any]]:
    """Ours to each peer's, round by round, then the median; latency and memory to their bars."""
    direct, ours, *peers = sides
    found = []
    for measure, of in ((TOKEN, _tokens), (REQUEST, _requests)):
        for peer in peers:
            ratio = statistics.median(a / b for a, b in zip(of(ours), of(peer), strict=True))
            found.append(_ratio(measure, peer.name, ratio, GOALS.get((measure, peer.name))))
    for measure, percent in ((FIRST_P50, 50), (FIRST_P99, 99)):
        ratio = ours.added(direct, percent) / MILLISECOND
        found.append(_ratio(measure, "1 ms", ratio, 1.0 if percent == 99 else None))
    delay = _middle(ours, lambda slow: slow.beside - slow.alone)
    found.append(_ratio(DELAY, "1 ms", max(0.0, delay) / MILLISECOND, 1.0))
    found.append(_ratio(HELD, "1 MB", _middle(ours, lambda slow: slow.bytes) / 1e6, 1.0))
    if idle is not None:
        found.append(_ratio(MEMORY, "400 MB", idle.megabytes / MEGABYTES, 1.0))
    return found


def tables_of(sides: Sequence[Side], ratios: Sequence[dict[str, Any]]) -> list[Table]:
    """For people."""
    columns = ["proxy", "us / request", "us / token", "p50, ms", "p99, ms", "streams/s"]
    cells = [
        [
            row["proxy"],
            f"{row['cpu_per_request'] * 1e6:.1f}",
            f"{row['cpu_per_token'] * 1e6:.1f}",
            f"{row['added_ttft_p50'] * 1e3:.2f}",
            f"{row['added_ttft_p99'] * 1e3:.2f}",
            f"{row['half_load']:,.0f}",
        ]
        for row in rows_of(sides)
    ]
    judged = [
        [
            each["measure"],
            each["peer"],
            f"{each['ratio']:.2f}",
            "-" if each["goal"] is None else f"{each['goal']:g}",
            "" if each["goal"] is None else "yes" if each["ratio"] <= each["goal"] else "no",
        ]
        for each in ratios
    ]
    return [
        Table(
            title="CPU time, and what is added to the time to the first token at half load",
            columns=columns,
            rows=cells,
        ),
        Table(
            title=f"Beside {READERS} clients that do not read: p99 between two events of another",
            columns=["proxy", "before, ms", "beside, ms", "MB / reader", "caught up, s"],
            rows=[
                [
                    row["proxy"],
                    f"{row['slow_alone'] * 1e3:.2f}",
                    f"{row['slow_beside'] * 1e3:.2f}",
                    f"{row['slow_bytes'] / 1e6:.2f}",
                    f"{row['slow_caught_up']:.2f}",
                ]
                for row in rows_of(sides)
            ],
        ),
        Table(
            title="surgetank beside them",
            columns=["measure", "peer", "ours / peer", "goal", "holds"],
            rows=judged,
        ),
    ]


def _ratio(measure: str, peer: str, ratio: float, goal: float | None) -> dict[str, Any]:
    return {"measure": measure, "peer": peer, "ratio": round(ratio, 3), "goal": goal}


def _middle(side: Side, of: Callable[[Slow], float]) -> float:
    return statistics.median(of(slow) for slow in side.slow)


def _tokens(side: Side) -> list[float]:
    return side.tokens


def _requests(side: Side) -> list[float]:
    return side.requests
