"""Whether a request that its engine did not answer goes to another one.

What no engine has begun with moves freely, `routing.moves` times: it was turned away, or could not
even be sent. An engine that was lost while it worked on a request may have died of it: there are
prompts that crash a kernel, and whoever gets one next dies as well. So after such a loss it goes to
one other engine. When that is lost too, the request is what both had in common: it goes to no
third, and its client is told not to send it again. What a client sends again after such an end
counts on from there.

Envoy keeps the two apart as well: that a connection failed, and a reset after which the server may
have seen the request.
"""

from surgetank.admission import refusals
from surgetank.admission.outcome import Refusal
from surgetank.admission.routing.config import RoutingConfig
from surgetank.admission.ticket import Ticket
from surgetank.telemetry.vocabulary import Reason

_SUSPECT = 2  # engines lost with a request in them, after which it goes to no other


def may_move(ticket: Ticket, why: Refusal, config: RoutingConfig) -> bool:
    """Whether it may go to one more engine; `why` it comes back from one."""
    return why.reason is not Reason.ENGINES_LOST and len(ticket.turned_away) < config.moves


def lost(ticket: Ticket, detail: str, *, begun: bool) -> Refusal:
    """Its engine was lost, and may have `begun` with it: this is noted, and told if it must end."""
    ticket.deaths += begun
    if begun and ticket.deaths >= _SUSPECT:
        return refusals.engines_lost(ticket.deaths)
    return refusals.backend_down(detail)
