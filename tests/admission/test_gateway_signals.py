"""The three metrics and the header that gateways schedule by."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.admission.doors.carriage_rig import CarriageRig, KeepingDoor, carriage_rig
from tests.fakes import engine_look

from surgetank.admission.doors.carried import BlindOrder, Carried
from surgetank.admission.gateway_signals import (
    GatewaySignals,
    appended,
    load_header,
    load_trailers,
    metrics_text,
    read_signals,
)
from surgetank.admission.snapshot import EngineLook
from surgetank.engine.backends.remote.found import Signals, Vitals
from surgetank.engine.protocols.orca_pb2 import OrcaLoadReport

BUSY = GatewaySignals(model='m"1', waiting=3, running=8, kv_used=0.25)


@pytest.fixture
async def rig() -> AsyncIterator[CarriageRig]:
    async with carriage_rig() as rig:
        yield rig


def test_the_metrics_are_those_of_vllm() -> None:
    families = text_string_to_metric_families(metrics_text(BUSY).decode())
    told = {
        each.name: (each.type, each.samples[0].labels, each.samples[0].value) for each in families
    }
    label = {"model_name": 'm"1'}
    assert told == {
        "vllm:num_requests_waiting": ("gauge", label, 3.0),
        "vllm:num_requests_running": ("gauge", label, 8.0),
        "vllm:kv_cache_usage_perc": ("gauge", label, 0.25),
    }


def test_what_is_not_known_is_not_told() -> None:
    assert metrics_text(None) == b""
    assert load_header(None, "TEXT") == ()
    assert b"kv_cache" not in metrics_text(GatewaySignals("m", 0, 0, None))


@pytest.mark.parametrize(
    ("wanted", "value"),
    [
        (
            "",
            "TEXT named_metrics.num_requests_waiting=3,named_metrics.num_requests_running=8,"
            "named_metrics.kv_cache_usage_perc=0.25",
        ),
        (
            "json",
            'JSON {"named_metrics":{"num_requests_waiting":3,"num_requests_running":8,'
            '"kv_cache_usage_perc":0.25}}',
        ),
    ],
)
def test_the_header_comes_as_it_is_wanted(wanted: str, value: str) -> None:
    assert load_header(BUSY, wanted) == (("endpoint-load-metrics", value),)


def test_grpcs_own_load_balancers_read_a_message() -> None:
    (text, told), (binary, report) = load_trailers(BUSY, "")
    assert (text, binary) == ("endpoint-load-metrics", "endpoint-load-metrics-bin")
    assert str(told).startswith("TEXT named_metrics.num_requests_waiting=3,")
    assert isinstance(report, bytes)
    assert OrcaLoadReport.FromString(report).named_metrics == {
        "num_requests_waiting": 3.0,
        "num_requests_running": 8.0,
        "kv_cache_usage_perc": 0.25,
    }
    assert load_trailers(None, "") == ()


def test_lines_stand_before_the_end_mark() -> None:
    assert appended(b"a 1\n# EOF\n", b"b 2\n") == b"a 1\nb 2\n# EOF\n"
    assert appended(b"a 1\n", b"b 2\n") == b"a 1\nb 2\n"


async def test_both_queues_are_told_as_one(rig: CarriageRig) -> None:
    for _ in range(2):
        carried = Carried(rig.carriage, KeepingDoor(), "envoy", [], "", "/v1/completions")
        carried.ask(BlindOrder("/v1/completions", carried.ticket.id, 8, 4))
    assert read_signals(rig.desk.snapshot()) == GatewaySignals("m", 1, 1, None)
    rig.backend.signals = Signals(at=0.0, waiting=1.0, kv_used=0.5)
    assert read_signals(rig.desk.snapshot()) == GatewaySignals("m", 2, 0, 0.5)


async def test_a_lost_engine_is_no_idle_one(rig: CarriageRig) -> None:
    await rig.backend.aclose()
    assert read_signals(rig.desk.snapshot()) is None


async def test_of_several_engines_queues_add_up_and_pools_are_averaged(rig: CarriageRig) -> None:
    def telling(name: str, waiting: float, kv_used: float) -> EngineLook:
        told = Signals(at=0.0, waiting=waiting, kv_used=kv_used)
        return engine_look(name, vitals=Vitals("vllm", name, None, told))

    gone = replace(telling("gone", 9.0, 0.9), card=None)
    engines = (telling("a", 2.0, 0.25), telling("b", 1.0, 0.75), engine_look("mute"), gone)
    desk = replace(rig.desk.snapshot(), dispatched_seqs=5, engines=engines)
    assert read_signals(desk) == GatewaySignals("m", 3, 2, 0.5)
