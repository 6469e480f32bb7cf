"""The kind of engine that takes token ids: which model it serves, and the calls made to it."""

from collections.abc import Callable

from surgetank.admission.api import Ask, Listener, TextModel
from surgetank.admission.call import Call
from surgetank.admission.desk import FrontDesk
from surgetank.admission.routing.side import Attached
from surgetank.admission.ticket import Ticket
from surgetank.admission.work import Owner
from surgetank.engine.api import Backend, ModelCard
from surgetank.engine.backends.remote.found import EMBEDDED
from surgetank.engine.text.codec import TextCodec

TextFrontDesk = FrontDesk[TextModel, Ask, Listener]


class TextAdapter:
    """Implements work.Adapter for Backends: all that they tell is in their steps."""

    def __init__(
        self, *backends: Backend, make_codec: Callable[[ModelCard], TextCodec] = TextCodec
    ) -> None:
        """At least one; several are called after their place."""
        self._backends = backends
        self._make_codec = make_codec
        if len(backends) == 1:
            self.engines = [_attached(backends[0], EMBEDDED)]
        else:
            self.engines = [_attached(each, str(at)) for at, each in enumerate(backends)]

    def serve(self, card: ModelCard, known: TextModel | None) -> TextModel:
        """A known tokenizer is not read again. Raises ValueError for one that cannot be read."""
        if known is None or known.card.tokenizer != card.tokenizer or known.name != card.name:
            return TextModel(card.name, card, self._make_codec(card))
        return TextModel(card.name, card, known.codec)

    def open(
        self, owner: Owner, ticket: Ticket, served: TextModel, ask: Ask, listener: Listener
    ) -> Call:
        """Raises ValueError for stop strings that cannot be."""
        return Call(owner, self._backends, ticket, ask, served.codec, listener)


def _attached(backend: Backend, name: str) -> Attached:
    return Attached(backend, name, vitals=lambda: backend.vitals)
