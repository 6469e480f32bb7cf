"""Ours: the production desk, gate, queue, hints and control loop, in virtual time."""

from surgetank.admission.api import Ask, Headers, Listener
from surgetank.admission.desk import FrontDesk
from surgetank.admission.outcome import Refusal, Refused
from surgetank.admission.text_adapter import TextAdapter, TextFrontDesk
from surgetank.control.drain import Drain
from surgetank.control.journal import Journal
from surgetank.control.lab.entrance import Caller, Handle
from surgetank.control.lab.mute import MuteCodec
from surgetank.control.lab.rivals.site import Site
from surgetank.control.loop import ControlLoop
from surgetank.control.policies.table import POLICIES
from surgetank.engine.api import Settings
from surgetank.telemetry.metricspec import Process
from surgetank.telemetry.recorder import Recorder
from surgetank.telemetry.registry import Registry

_PERIOD = 0.25  # seconds between two passes of the control loop, as in ControlConfig


class SidecarEntrance:
    """The production desk, as its HTTP door uses it."""

    def __init__(self, desk: TextFrontDesk) -> None:
        self._desk = desk

    def open(
        self, caller: Caller, headers: Headers, ask: Ask, listener: Listener
    ) -> Handle | Refusal:
        """Through arrive(), find() and submit()."""
        ticket = self._desk.arrive("http", headers)
        ticket.stream = caller.streams
        ticket.tenant = caller.tenant
        ticket.priority = caller.priority
        try:
            served = self._desk.find("default")
        except Refused as refused:
            return self._desk.refuse(ticket, refused.refusal)
        try:
            return self._desk.submit(ticket, served, ask, listener)
        except Refused as refused:
            return refused.refusal


def build_ours(site: Site) -> SidecarEntrance:
    """A whole sidecar but for its sockets."""
    timeline, registry = site.timeline, Registry(Process.SIDECAR, site.slo)
    desk = FrontDesk(
        adapter=TextAdapter(*site.ports, make_codec=MuteCodec),
        recorder=Recorder(registry),
        clock=timeline,
        rng=site.rng,
        call_later=timeline.call_later,
        config=site.gate,
        quotas=site.quotas,
    )
    journal = Journal(timeline, None)

    def apply(settings: Settings) -> None:
        for port in site.ports:
            port.apply(settings)

    loop = ControlLoop(
        clock=timeline,
        config=site.gate,
        policies=POLICIES,
        limits=desk.limits,
        journal=journal,
        drain=Drain(timeline, journal, lambda on: desk.drain() if on else desk.undrain()),
        read=desk.snapshot,
        apply=apply,
        policy_errors=registry.counter("control_policy_errors_total").at(),
    )
    for port, watcher in zip(site.ports, desk.engines.watchers, strict=True):
        port.watch(watcher)

    def tick() -> None:
        loop.tick()
        timeline.call_later(_PERIOD, tick)

    timeline.call_later(_PERIOD, tick)
    return SidecarEntrance(desk)
