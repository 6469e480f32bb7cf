"""The life of a policy: off, shadow, canary, live; each act has an author, a reason and an end.

A shadow is asked and not obeyed; a canary decides on a share of the calls and is rolled back when
it does significantly worse; what was promoted is live until the process ends. A control policy is
tried the same way: its values are supposed while the live admission policy is asked once more.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from surgetank.admission.policies.canary import Canary, CanaryConfig
from surgetank.admission.policies.part import Part
from surgetank.admission.policies.plugins import PolicyError
from surgetank.admission.policies.policy import Plugin
from surgetank.admission.policies.probation import Probation
from surgetank.admission.policies.rule import built
from surgetank.admission.policies.shadow import BOTH, Shadow
from surgetank.admission.policies.stage import Stage
from surgetank.admission.snapshot import DeskSnapshot
from surgetank.control.actions import UnknownName, WouldWorsen
from surgetank.control.journal import Journal
from surgetank.control.loop import OURSELVES, ControlLoop
from surgetank.control.policies.plugins import Offer, offers
from surgetank.control.policies.policy import Policy
from surgetank.control.policies.trying import Tried
from surgetank.telemetry.clock import Clock
from surgetank.telemetry.registry import Registry, Sample

MOST_SHADOWS = 4  # each costs a decision more for every request
ENOUGH = 50  # calls of a canary that ended or were refused, before it may be promoted
OFF, SHADOW, LIVE = "off", "shadow", "live"
_WORDS = {True: "admitted", False: "refused"}


@dataclass(frozen=True, slots=True)
class Held:
    """Who put a policy where it is, and until when (monotonic; inf: the process' end)."""

    who: str
    why: str
    since: float
    until: float


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """What an act did, or with `dry_run` would have done. `ttl` in seconds."""

    what: str
    before: str
    after: str
    ttl: float | None
    dry_run: bool = False


class Trials:
    """Puts policies on stage and takes them off. Methods raise UnknownName, WouldWorsen and
    PolicyError, with sentences to show."""

    def __init__(
        self,
        *,
        clock: Clock,
        stage: Stage,
        loop: ControlLoop,
        journal: Journal,
        registry: Registry,
        config: CanaryConfig,
        table: Callable[[], dict[str, Offer]] = offers,
    ) -> None:
        self.stage = stage
        self.held: dict[str, Held] = {}
        self.fallen: dict[str, str] = {}  # why the last rollback of each was
        self.table = table
        self._clock = clock
        self._loop = loop
        self._journal = journal
        self._config = config
        self._decisions = registry.counter("policy_shadow_decisions_total")
        self._rollbacks = registry.counter("policy_rollbacks_total")
        self._errors = registry.counter("policy_errors_total")
        self.tried: dict[str, Tried] = {}  # control policies in shadow or canary
        stage.configured.errors = self._errors.at(stage.configured.name)
        registry.source("policy_canary_goodput_ratio", self._goodput)
        loop.on_tick(self.tick)

    def now(self) -> float:
        """Monotonic seconds."""
        return self._clock.monotonic()

    def find(self, name: str) -> Offer:
        """The policy of that name, usable or not; raises UnknownName."""
        table = self.table()
        if name not in table:
            raise UnknownName(f"no policy {name!r}; there are: {', '.join(table)}")
        return table[name]

    def state(self, name: str) -> str:
        """off, shadow, canary SHARE or live."""
        canary = self.stage.canary
        if canary is not None and canary.part.name == name:
            return f"canary {canary.share:.4g}"
        if name in self.stage.shadows:
            return SHADOW
        return LIVE if name in (self.stage.live.name, *self._loop.policies) else OFF

    def shadow(self, name: str, *, ttl: float, who: str, why: str, dry_run: bool) -> PolicyChange:
        """Ask it beside the live policy; once more: only the end and the reason are new."""
        offer, before = self._offer(name), self.state(name)
        if before not in (OFF, SHADOW):
            raise WouldWorsen(f"{name} is {before}: surgetank policy rollback {name} comes first")
        if before is OFF and len(self.stage.shadows) >= MOST_SHADOWS:
            others = ", ".join(self.stage.shadows)
            raise WouldWorsen(f"{MOST_SHADOWS} shadows are the most; there are: {others}")
        if before is OFF and not dry_run:
            counters = {
                both: self._decisions.at(name, _WORDS[both[0]], _WORDS[both[1]]) for both in BOTH
            }
            shadow = Shadow(self._part(offer), counters)
            self.stage.shadows = self.stage.shadows | {name: shadow}
            self.stage.changed()
        return self._acted(name, before, SHADOW, ttl, who, why, dry_run)

    def canary(
        self, name: str, share: float, *, ttl: float, who: str, why: str, dry_run: bool
    ) -> PolicyChange:
        """Let it decide on a share of the calls; another share begins a new comparison."""
        offer, before = self._offer(name), self.state(name)
        canary = self.stage.canary
        if before == LIVE:
            raise WouldWorsen(f"{name} is live: there is nothing to compare it with")
        if canary is not None and canary.part.name != name:
            raise WouldWorsen(f"{canary.part.name} is the canary; one at a time can be compared")
        if not dry_run:
            now, salt = self._clock.monotonic(), f"{name} {self._clock.wall():.0f}"
            part = self._leave(name)
            if part is None or part.broken:
                part = self._part(offer)
            self.stage.canary = Canary(part, share, self._config, salt=salt, now=now)
            self.stage.changed()
        return self._acted(name, before, f"canary {share:.4g}", ttl, who, why, dry_run)

    def promote(
        self, name: str, *, ttl: float | None, who: str, why: str, dry_run: bool, force: bool
    ) -> PolicyChange:
        """Make it live until the process ends, or for `ttl` seconds; only out of a canary that
        has shown enough, unless forced."""
        offer, before = self._offer(name), self.state(name)
        if before == LIVE:
            raise WouldWorsen(f"{name} is live")
        if not force and (lack := self._lack(name)) is not None:
            raise WouldWorsen(lack)
        if not dry_run:
            part = self._leave(name)
            if isinstance(offer.made, Policy):
                self.tried.pop(name, None)
                self._loop.add(name, offer.made)
            else:
                part = part or self._part(offer)  # before anybody loses a place for it
                self._displace(name, who)
                self.stage.live = part
            self.stage.probation = Probation(name, self._config, self._clock.monotonic())
            self.stage.changed()
        return self._acted(name, before, LIVE, ttl, who, why, dry_run)

    def rollback(self, name: str, *, who: str, why: str, dry_run: bool) -> PolicyChange:
        """End its part; what was promoted gives way to what is configured."""
        self._offer(name)
        before = self.state(name)
        if before == LIVE and name not in self.held:
            raise WouldWorsen(f"{name} is live by configuration: there is nothing to go back to")
        if not dry_run and before != OFF:
            self._roll_back(name, who, why, "operator")
        return PolicyChange(f"policy {name}", before, OFF, None, dry_run)

    def tick(self, snapshot: DeskSnapshot) -> None:
        """Each pass of the control loop: what is over, what failed, what is worse."""
        now = self._clock.monotonic()
        for tried in self.tried.values():
            tried.step(snapshot)
        for name, held in list(self.held.items()):
            if held.until <= now:
                self._roll_back(name, held.who, f"expired: {held.why}", "expiry")
        for part in self.stage.parts():
            if part.broken and part.name in self.held:
                why = f"it failed {part.faults} times"
                self._roll_back(part.name, OURSELVES, why, "errors")
        watch = self.stage.probation
        if watch is not None and watch.late_too_often():
            why = f"late since it is live: {watch.late} of {watch.late + watch.good} requests"
            self._roll_back(watch.name, OURSELVES, why, "late")
        canary = self.stage.canary
        if canary is not None and (cause := canary.worse(now)) is not None:
            self._roll_back(canary.part.name, OURSELVES, _worse(canary, cause), cause)

    def _offer(self, name: str) -> Offer:
        offer = self.find(name)
        if offer.problem is not None:
            raise PolicyError(offer.problem)
        return offer

    def _part(self, offer: Offer) -> Part:
        """It, ready to play; a control policy under its values, asking as the live one does."""
        site, errors = self.stage.site, self._errors.at(offer.name)
        try:
            if isinstance(offer.made, Plugin):
                return Part(offer.name, built(offer.made, site), site.limits, errors)
            policy = self.stage.fresh(self.stage.live.name)
        except PolicyError:
            raise
        except Exception as error:  # foreign code
            said = f"{type(error).__name__}: {error}"
            raise PolicyError(f"policy {offer.name!r} of {offer.source}: {said}") from error
        part = Part(offer.name, policy, site.limits, errors)
        if isinstance(offer.made, Policy):
            self.tried[offer.name] = Tried(offer.made, part, self._loop.config)
        return part

    def _lack(self, name: str) -> str | None:
        """What speaks against promoting it now."""
        canary = self.stage.canary
        if canary is None or canary.part.name != name:
            return f"{name} was no canary: surgetank policy canary {name} comes first, or --force"
        calls = canary.current.candidate.calls + (canary.last.candidate.calls if canary.last else 0)
        if calls < ENOUGH:
            return f"{name} has decided on {calls} calls of the {ENOUGH} that say something"
        return None

    def _displace(self, name: str, who: str) -> None:
        """One admission policy is live: another that was promoted before is off."""
        earlier = self.stage.live.name
        if self.held.pop(earlier, None) is not None:
            self._note(earlier, LIVE, OFF, None, who, f"{name} takes its place", "operator")

    def _leave(self, name: str) -> Part | None:
        """Take it off the stage, for another part; what it has learned goes with it."""
        canary, shadows = self.stage.canary, dict(self.stage.shadows)
        if canary is not None and canary.part.name == name:
            self.stage.canary = None
            return canary.part
        shadow = shadows.pop(name, None)
        self.stage.shadows = shadows
        return None if shadow is None else shadow.part

    def _roll_back(self, name: str, who: str, why: str, cause: str) -> None:
        before = self.state(name)
        if before == LIVE and name in self._loop.policies:
            self._loop.remove(name)
        elif before == LIVE:
            self.stage.live = self.stage.configured
        if self.stage.probation is not None and self.stage.probation.name == name:
            self.stage.probation = None
        self._leave(name)
        self.tried.pop(name, None)
        self.stage.changed()
        del self.held[name]
        self.fallen[name] = f"{cause}: {why}"
        self._rollbacks.at(name, cause).value += 1
        word = cause if cause in ("operator", "expiry") else "policy"
        self._note(name, before, OFF, None, who, why, word)

    def _acted(
        self,
        name: str,
        before: str,
        after: str,
        ttl: float | None,
        who: str,
        why: str,
        dry_run: bool,
    ) -> PolicyChange:
        if not dry_run:
            now = self._clock.monotonic()
            self.held[name] = Held(who, why, now, math.inf if ttl is None else now + ttl)
            self._note(name, before, after, ttl, who, why, "operator")
        return PolicyChange(f"policy {name}", before, after, ttl, dry_run)

    def _note(
        self, name: str, before: str, after: str, ttl: float | None, who: str, why: str, cause: str
    ) -> None:
        self._journal.write(
            who=who,
            why=why,
            what=f"policy {name}",
            before=before,
            after=after,
            ttl=ttl,
            cause=cause,
        )

    def _goodput(self) -> list[Sample]:
        canary = self.stage.canary
        if canary is None:
            return []
        arms = {"live": canary.current.live, "candidate": canary.current.candidate}
        return [
            ({"arm": name}, arm.goodput) for name, arm in arms.items() if arm.goodput is not None
        ]


def _worse(canary: Canary, cause: str) -> str:
    """The evidence in a sentence."""
    now = canary.current
    if cause == "goodput":
        live, its, what = now.live.goodput, now.candidate.goodput, "goodput"
    else:
        live, its, what = now.live.late_share, now.candidate.late_share, "late of what it admitted"
    calls = f"{now.candidate.calls} and {now.live.calls} calls"
    return f"worse than the live policy: {what} {its or 0.0:.0%} beside {live or 0.0:.0%} ({calls})"
