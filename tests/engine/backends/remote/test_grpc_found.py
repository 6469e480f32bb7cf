"""An engine by vLLM's gRPC protocol: what it says of itself, and what is counted of its answers."""

import pytest
from google.protobuf.message import DecodeError

from surgetank.engine.backends.remote.api import Usage
from surgetank.engine.backends.remote.config import BackendConfig
from surgetank.engine.backends.remote.found import Signals, Source
from surgetank.engine.backends.remote.grpc_found import Count, found, signals
from surgetank.engine.protocols import vllm_engine_pb2 as pb

CONFIG = BackendConfig(url="grpc://127.0.0.1:1")
MODEL = pb.GetModelInfoResponse(served_model_name="m", max_context_length=4096, vocab_size=100)
SERVER = pb.GetServerInfoResponse(block_size=32, max_num_seqs=8, model_dtype="bfloat16")


def loads(*ranks: tuple[int, int, float]) -> pb.GetLoadsResponse:
    told = pb.GetLoadsResponse(version="0.32.0")
    for running, waiting, used in ranks:
        told.loads.add(
            num_running_reqs=running,
            num_waiting_reqs=waiting,
            token_usage=used,
            max_total_num_tokens=3200,
        )
    return told


def test_what_it_tells() -> None:
    told = found(CONFIG, MODEL, SERVER, loads((0, 0, 0.0), (0, 0, 0.0)))
    assert (told.kind, told.version, told.models) == ("vllm-grpc", "0.32.0", ("m",))
    assert (told.card.context_length, told.card.max_num_seqs) == (4096, 8)
    assert (told.card.kv_blocks, told.card.kv_block_size) == (200, 32)
    assert told.signals == ("running", "waiting", "kv_used")
    assert told.slots is Source.TOLD


def test_what_it_does_not_tell_is_configured_or_guessed() -> None:
    mute = found(CONFIG, pb.GetModelInfoResponse(model_path="p"), pb.GetServerInfoResponse(), None)
    assert (mute.models, mute.version, mute.signals, mute.metrics) == (("p",), "", (), "")
    assert (mute.card.max_num_seqs, mute.slots) == (256, Source.GUESSED)
    set_by_hand = CONFIG.model_copy(update={"max_num_seqs": 3, "context_length": 64})
    told = found(set_by_hand, MODEL, SERVER, None)
    assert (told.card.max_num_seqs, told.slots) == (3, Source.CONFIGURED)
    assert told.card.context_length == 64


def test_ranks_add_up() -> None:
    told = signals(loads((3, 1, 0.25), (5, 0, 0.75)), 7.0)
    assert told == Signals(at=7.0, running=8, waiting=1, kv_used=0.5)
    assert signals(loads(), 7.0) == Signals(at=7.0)


def chunk(*ids: int) -> bytes:
    part = pb.GenerateStreamChunk(token_ids=ids, prompt_tokens=9, cached_tokens=4)
    return pb.GenerateResponse(chunk=part).SerializeToString()


def complete(*ids: int, index: int = 0) -> bytes:
    end = pb.GenerateComplete(output_ids=ids, prompt_tokens=9, cached_tokens=4, index=index)
    return pb.GenerateResponse(complete=end).SerializeToString()


def test_a_streams_tokens_are_those_of_its_chunks() -> None:
    count = Count()
    told = [count.add(data) for data in (chunk(1, 2), chunk(3), complete(3), complete())]
    assert told == [2, 1, 0, 0]
    assert count.usage() == Usage(9, 3, 4)


def test_a_plain_answers_tokens_are_those_of_all_its_choices() -> None:
    count = Count()
    assert [count.add(data) for data in (complete(1, 2), complete(3, index=1))] == [0, 0]
    assert count.usage() == Usage(9, 3, 4)


def test_what_is_no_response_cannot_be_counted() -> None:
    with pytest.raises(DecodeError):
        Count().add(b"\xff\xff")
