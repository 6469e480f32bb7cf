"""Both doors hold one table: what one of them takes or refuses, the other does too."""

import json

import pytest
from tests.fakes import FakeDesk

from surgetank.admission.doors.grpc.sampling import read_sampling
from surgetank.admission.doors.http.completions import COMPLETIONS
from surgetank.admission.doors.http.config import HttpConfig
from surgetank.admission.doors.ranges import NUMBERS, Range, unknown_id
from surgetank.admission.limits import SPECS, Limit
from surgetank.admission.outcome import Refused

CONFIG = HttpConfig.model_validate({})
SERVED = FakeDesk().served


def over_http(name: str, value: float) -> object:
    """What the HTTP door makes of one number."""
    fields = {"model": "m", "prompt": "x", "max_tokens": 2**31 - 1, name: value}
    ask = COMPLETIONS.read(json.dumps(fields).encode(), CONFIG).ask(SERVED)
    return ask.n if name == "n" else getattr(ask.sampling, name)


def over_grpc(name: str, value: float) -> object:
    """What the gRPC door makes of it."""
    sampling = read_sampling({"max_tokens": 2**31 - 1, name: value}, logprobs=False)
    return sampling.n if name == "n" else getattr(sampling.params, name)


@pytest.mark.parametrize(("name", "numbers"), NUMBERS.items(), ids=NUMBERS)
def test_both_doors_take_the_ends_of_a_range_and_nothing_beyond(name: str, numbers: Range) -> None:
    for end in (numbers.low, numbers.high):
        assert over_http(name, end) == over_grpc(name, end) == (0 if end == -1 else end)
    beyond = 1 if numbers.kind is int else 1e-6
    for value in (numbers.low - beyond, numbers.high + beyond, float("inf")):
        for door in (over_http, over_grpc):
            with pytest.raises(Refused):
                door(name, value)


def test_the_doors_leave_room_for_whatever_the_limit_on_choices_may_be_set_to() -> None:
    assert NUMBERS["n"].high == SPECS[Limit.MAX_N].maximum


def test_the_first_unknown_id_is_found() -> None:
    assert unknown_id([], 10) is None
    assert unknown_id([0, 9], 10) is None
    assert unknown_id([3, 10, -1], 10) == 10
    assert unknown_id([3, -1], 10) == -1
