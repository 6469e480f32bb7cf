"""A played service, policies to try on it, and calls that are all different."""

from dataclasses import replace

from tests.admission.policies.actors import Alternating, Broken, Refusing
from tests.admission.rig import Door
from tests.control.service import PlayedService

from surgetank.admission.limits import Limit
from surgetank.admission.policies.policy import Admission, AdmissionPolicy, Plugin
from surgetank.admission.policies.site import Site
from surgetank.admission.ticket import Ticket
from surgetank.control.policies.plugins import OURS, Kind, Offer
from surgetank.control.policies.policy import Policy, stateless
from surgetank.engine.api import ModelCard


class Welcoming(Alternating):
    """Admits everybody: what it takes here, where calls end before the next comes."""

    def decide(
        self, ticket: Ticket, card: ModelCard, now: float, stalled_for: float | None
    ) -> Admission:
        return Admission()


CLOSED = stateless(lambda config, snapshot: {Limit.LOWEST_CLASS: 0.0}, "critical only")
SMALL = stateless(lambda config, snapshot: {Limit.QUEUE_REQUESTS: 7.0, Limit.MAX_NUM_SEQS: 2.0})


def _fragile(config: object, snapshot: object) -> dict[Limit, float]:
    raise ZeroDivisionError("no traffic")


MADE: dict[str, Plugin | Policy] = {
    "half": Plugin(lambda _: Alternating(), "refuses every other"),
    "never": Plugin(lambda _: Refusing(), "refuses all"),
    "welcome": Plugin(lambda _: Welcoming(), "admits all"),
    "broken": Plugin(lambda _: Broken(), "raises"),
    "closed": CLOSED,
    "small": SMALL,
    "fragile": stateless(_fragile, "raises"),
    "unbuilt": Plugin(lambda site: _unbuilt(site), "cannot be built"),
}


def _unbuilt(site: Site) -> AdmissionPolicy:
    raise LookupError(f"no {site.queue.requests} stars tonight")


class Crowd:
    """Sends and serves."""

    def __init__(self) -> None:
        self.service = PlayedService()
        self.rig, self.trials = self.service.rig, self.service.trials
        self.sent = 0
        for name, made in MADE.items():
            kind = Kind.CONTROL if isinstance(made, Policy) else Kind.ADMISSION
            self.service.table[name] = Offer(name, kind, made.help, OURS, made)
        broken = replace(self.service.table["half"], made=None, kind=None, problem="it is not well")
        self.service.table["ill"] = replace(broken, name="ill")

    def call(self, served_after: float = 0.01) -> Door:
        """One call, unlike all before; what is admitted is answered after so many seconds."""
        self.sent += 1
        door = self.rig.send(prompt=4 + self.sent % 200, max_tokens=8 + self.sent // 200)
        self.rig.timer.advance(served_after)
        if self.rig.backend.open:
            self.rig.backend.finish(min(self.rig.backend.open))
        return door

    def calls(self, number: int) -> list[Door]:
        """As many, with a pass of the control loop after every tenth."""
        doors = []
        for each in range(number):
            doors.append(self.call())
            if each % 10 == 9:
                self.service.pass_time(0.25)
        return doors

    def journal(self) -> list[tuple[str, object, object, str, str]]:
        """What the journal says of policies."""
        return [
            (each.what, each.before, each.after, each.who, each.cause)
            for each in self.service.journal.recent()
            if each.what.startswith("policy ")
        ]

    def rollbacks(self, name: str, cause: str) -> float:
        counter = self.rig.recorder.registry.counter("policy_rollbacks_total")
        return counter.at(name, cause).value
