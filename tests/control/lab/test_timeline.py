"""Virtual time: order, cancellation, and a heap that does not fill up with cancelled timers."""

import math

from surgetank.control.lab.timeline import Timeline


def test_callbacks_run_in_order_of_time_and_then_of_setting() -> None:
    timeline, seen = Timeline(), []
    timeline.call_later(2.0, lambda: seen.append(("late", timeline.monotonic())))
    timeline.call_at(1.0, lambda: seen.append(("first", timeline.monotonic())))
    timeline.call_at(1.0, lambda: seen.append(("second", timeline.monotonic())))
    timeline.run(1.5)
    assert seen == [("first", 1.0), ("second", 1.0)]
    assert timeline.monotonic() == 1.5
    timeline.run(5.0)
    assert seen[-1] == ("late", 2.0)


def test_what_is_set_at_this_instant_comes_after_what_is_due() -> None:
    timeline, seen = Timeline(), []
    timeline.call_at(1.0, lambda: timeline.call_later(0.0, lambda: seen.append("set")))
    timeline.call_at(1.0, lambda: seen.append("due"))
    timeline.run(1.0)
    assert seen == ["due", "set"]


def test_cancelled_timers_do_not_fire_and_do_not_pile_up() -> None:
    timeline, seen = Timeline(), []
    for _ in range(10_000):
        timeline.call_later(1000.0, lambda: seen.append(1)).cancel()
    assert len(timeline._heap) < 1000
    assert timeline.next_at() == math.inf
    timeline.run(2000.0)
    assert seen == []


def test_wall_time_is_the_same_in_every_run() -> None:
    timeline = Timeline()
    timeline.run(3.0)
    assert timeline.wall() == 1_700_000_003.0
