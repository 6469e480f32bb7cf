"""What a relayed request may become: the gate's price of it, and the engine's own end."""

import json

import pytest
from tests.fakes import tiny_card

from surgetank.admission.doors.http.head import Head
from surgetank.admission.doors.http.relay_routes import read_order
from surgetank.admission.prompt_size import PromptSizes
from surgetank.admission.relay import RelayModel

CHAT = Head("POST", "/v1/chat/completions", [], http_1_0=False, keep_alive=True)
NEWER = "max_completion_tokens"


@pytest.mark.parametrize(
    ("body", "context", "priced", "ends"),
    [
        ({"max_tokens": 9}, 1000, 9, 9),
        ({NEWER: 9}, 1000, 512, 996),  # the engine passes it over
        ({}, 1000, 512, 996),  # it goes on to its context's end
        ({}, 100, 96, 96),
        ({}, 0, 512, 0),  # nobody knows where
    ],
)
def test_without_a_limit_that_the_engine_knows_its_context_is_the_end(
    body: dict[str, int], context: int, priced: int, ends: int
) -> None:
    data = json.dumps({"prompt": [1, 2, 3, 4], **body}).encode()
    served = RelayModel("m", tiny_card(context_length=context), ("m",), frozenset({NEWER}))
    ask = read_order(CHAT, data, "r", PromptSizes(), 512).ask(served)
    assert (ask.max_tokens, ask.forward.max_tokens) == (priced, ends)
    assert ask.cut(5).forward.max_tokens == 5
