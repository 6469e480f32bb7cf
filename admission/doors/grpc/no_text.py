"""KServe requests before engines that take token ids alone: each is told so."""

from typing import Any, NoReturn

from surgetank.admission import refusals
from surgetank.admission.doors.grpc.inbox import Inbox
from surgetank.admission.doors.grpc.query import Query
from surgetank.admission.outcome import Refused


class NoTextTongue:
    """Implements tongue.Tongue; nothing is asked for, so that nothing is answered."""

    async def ask(self, query: Query, served: Any, request_id: str) -> NoReturn:
        """Raises Refused."""
        raise Refused(refusals.token_ids_only())

    def listener(self, query: Query, inbox: Inbox) -> NoReturn:
        """Never asked for."""
        raise Refused(refusals.token_ids_only())

    def responder(self, query: Query, served: Any, ask: Any) -> NoReturn:
        """Never asked for."""
        raise Refused(refusals.token_ids_only())
