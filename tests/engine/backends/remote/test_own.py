"""Our count of a second, against the engine's of some moment in it."""

from surgetank.engine.backends.remote.own import OwnCount


def test_between_the_least_and_the_most_of_two_looks_nothing_is_wrong() -> None:
    own = OwnCount()
    for step in (+4, +3, -5, +1):  # 4, 7, 2, 3
        own.add(step)
    assert own.looked(7) == 0
    assert own.looked(0) == 0  # as it was before the first
    assert own.looked(3) == 0
    assert own.looked(2) == 1
    assert own.looked(5) == -2
    own.add(-3)
    assert own.looked(3) == 0
    assert own.looked(0) == 0
    assert own.looked(3) == -3


def test_a_storm_is_no_drift_and_one_that_it_lost_is() -> None:
    """Four hundred calls a second that give up at once; its metrics are half a second old."""
    own, told, drifts = OwnCount(), [0], list[int | None]()
    own.add(2)  # long ones
    for step in range(4000):
        own.add(+1 if step % 2 else +3)
        own.add(-1 if step % 2 else -3)
        told.append(2 + (1 if step % 2 else 3))
        if step % 400 == 399:
            drifts.append(own.looked(told[-200]))
    assert set(drifts) == {0}
    lost = [own.looked(1) for _ in range(3)]
    assert lost == [1, 1, 1]
