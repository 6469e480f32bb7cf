"""Who is in the engine: waiting, running or following; and every way in, on and out."""

from bisect import insort
from collections.abc import Iterator

from surgetank.engine.kv.manager import KVManager
from surgetank.engine.kv.swap import HostPool
from surgetank.engine.plan import Plan, View
from surgetank.engine.policies.policy import Policy
from surgetank.engine.sequence import Sequence


class Roster:
    """Keeps the scheduler's view. Whoever leaves gives its blocks back in the same call."""

    def __init__(self, kv: KVManager, policy: Policy) -> None:
        self.view = View(running=[], waiting=[], kv=kv, policy=policy)
        self._live: dict[int, dict[int, Sequence]] = {}  # by request id, then index

    def __len__(self) -> int:
        """Choices that have not ended, followers included."""
        return sum(map(len, self._live.values()))

    def __contains__(self, request_id: int) -> bool:
        return request_id in self._live

    def __iter__(self) -> Iterator[Sequence]:
        for choices in self._live.values():
            yield from choices.values()

    def choices(self, request_id: int, index: int = -1) -> list[Sequence]:
        """A request's choices that have not ended, or one of them; empty when there is none."""
        choices = self._live.get(request_id, {})
        return [each for each in choices.values() if index in (-1, each.index)]

    def add(self, leader: Sequence) -> None:
        """A new request, at its place in the line."""
        self._live[leader.request_id] = {each.index: each for each in (leader, *leader.followers)}
        self._wait(leader)

    def follow(self, plan: Plan) -> None:
        """Move between waiting and running as the scheduler decided."""
        view = self.view
        view.steps += 1
        for each in plan.preempted:
            each.sequence.preemptions += 1
            each.sequence.lost = each.tokens
            view.running.remove(each.sequence)
            self._wait(each.sequence)
        for sequence in plan.admitted:
            view.waiting.remove(sequence)
            view.running.append(sequence)

    def fork(self, leader: Sequence) -> None:
        """The prompt is read: each follower runs on its own, on shared blocks."""
        for follower in leader.followers:
            follower.leader = None
            follower.started, follower.preemptions = True, leader.preemptions
            follower.tokens = list(leader.tokens)
            follower.table = self.view.kv.fork(leader.table)
            self.view.running.append(follower)
        leader.followers = []

    def remove(self, sequence: Sequence) -> None:
        """Out, whatever it was doing; its followers, if any, go on without it."""
        choices = self._live[sequence.request_id]
        del choices[sequence.index]
        if not choices:
            del self._live[sequence.request_id]
        if sequence.leader is not None:
            sequence.leader.followers.remove(sequence)
            return
        line = self.view.running if sequence in self.view.running else self.view.waiting
        heir = sequence.hand_over()
        if heir is not None:
            line[line.index(sequence)] = heir
        else:
            line.remove(sequence)
            self.view.kv.release(sequence.table)

    def reorder(self, policy: Policy) -> None:
        """From now on the line is in this policy's order."""
        self.view.policy = policy
        self.view.waiting.sort(key=policy.place)

    def forget_swapped(self) -> None:
        """The swap pool is gone: what was there will be computed again."""
        kv = self.view.kv
        for sequence in self.view.waiting:
            kv.forget_swapped(sequence.table)
        kv.host = HostPool(0)

    def _wait(self, sequence: Sequence) -> None:
        insort(self.view.waiting, sequence, key=self.view.policy.place)
