"""What an engine says of itself over vLLM's gRPC protocol, as a Found and as Signals."""

from surgetank.engine.api import ModelCard
from surgetank.engine.backends.remote.api import Usage
from surgetank.engine.backends.remote.config import BackendConfig
from surgetank.engine.backends.remote.found import Found, Signals, Source
from surgetank.engine.protocols import vllm_engine_pb2 as pb

KIND = "vllm-grpc"
_USUAL_SEQS = 256  # vLLM's
_BLOCK = 16  # tokens, where a pool's blocks are not known


def found(
    config: BackendConfig,
    model: pb.GetModelInfoResponse,
    server: pb.GetServerInfoResponse,
    loads: pb.GetLoadsResponse | None,
) -> Found:
    """The engine; `loads` None: it tells none."""
    name = model.served_model_name or model.model_path
    block = server.block_size or _BLOCK
    told = () if loads is None else loads.loads
    pool = sum(load.max_total_num_tokens for load in told)
    version = "" if loads is None else loads.version
    seqs = config.max_num_seqs or server.max_num_seqs
    source = Source.CONFIGURED if config.max_num_seqs else Source.TOLD
    card = ModelCard(
        name=name,
        context_length=config.context_length or model.max_context_length,
        vocab_size=model.vocab_size,
        eos_token_ids=tuple(model.eos_token_ids),
        tokenizer="",
        chat_template="",
        bos_token="",
        eos_token="",
        add_bos=False,
        architecture=model.model_type,
        parameters=0,
        dtype=server.model_dtype,
        device="",
        kv_block_size=block,
        kv_blocks=pool // block,
        kv_bytes_per_token=0,
        max_num_seqs=seqs or _USUAL_SEQS,
        max_batch_tokens=2048,
        engine_version=f"{KIND} {version}".strip(),
        pid=0,
    )
    return Found(
        kind=KIND,
        version=version,
        card=card,
        models=(name,),
        signals=("running", "waiting", "kv_used") if told else (),
        metrics="GetLoads" if told else "",
        slots=source if seqs else Source.GUESSED,
    )


def signals(loads: pb.GetLoadsResponse, at: float) -> Signals:
    """Of all its ranks together; `at` in monotonic seconds."""
    told = loads.loads
    if not told:
        return Signals(at=at)
    return Signals(
        at=at,
        running=sum(load.num_running_reqs for load in told),
        waiting=sum(load.num_waiting_reqs for load in told),
        kv_used=sum(load.token_usage for load in told) / len(told),
    )


class Count:
    """What goes by of one answer."""

    def __init__(self) -> None:
        self._streams = False
        self._prompt = 0
        self._cached = 0
        self._output = 0

    def add(self, data: bytes) -> int:
        """One GenerateResponse; how many tokens of a stream it brings. After chunks a Complete
        repeats the last of them. Raises DecodeError."""
        response = pb.GenerateResponse.FromString(data)
        chunk, complete = response.chunk, response.complete
        self._streams = self._streams or response.HasField("chunk")
        self._prompt = chunk.prompt_tokens or complete.prompt_tokens
        self._cached = chunk.cached_tokens or complete.cached_tokens
        fresh = chunk.token_ids if self._streams else complete.output_ids
        self._output += len(fresh)
        return len(fresh) if self._streams else 0

    def usage(self) -> Usage:
        """All of it."""
        return Usage(self._prompt, self._output, self._cached)
