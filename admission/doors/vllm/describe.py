"""What the door says of the model and of itself, and the tokenizer as an archive."""

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator

from surgetank.admission.api import TextModel
from surgetank.engine.api import ModelCard
from surgetank.engine.protocols import smg_common_pb2 as common
from surgetank.engine.protocols import vllm_engine_pb2 as pb

_CHUNK = 64 << 10  # bytes of the archive in one message


def model_info(served: TextModel) -> pb.GetModelInfoResponse:
    """The model card in the protocol's words."""
    card = served.card
    return pb.GetModelInfoResponse(
        model_path=served.name,
        served_model_name=served.name,
        is_generation=True,
        model_type=card.architecture,
        max_context_length=card.context_length,
        max_req_input_len=card.context_length,
        vocab_size=card.vocab_size,
        eos_token_ids=card.eos_token_ids,
        bos_token_id=served.codec.token_id(card.bos_token) or 0,
        pad_token_id=card.eos_token_ids[0] if card.eos_token_ids else 0,
    )


def server_info(
    card: ModelCard, uptime: float, *, active: int, paused: bool
) -> pb.GetServerInfoResponse:
    """`uptime` in seconds; `active`: requests that have not ended."""
    return pb.GetServerInfoResponse(
        active_requests=active,
        is_paused=paused,
        uptime_seconds=uptime,
        server_type="surgetank",
        data_parallel_size=1,
        block_size=card.kv_block_size,
        model_dtype=card.dtype,
        max_num_seqs=card.max_num_seqs,
    )


def tokenizer_archive(card: ModelCard) -> bytes:
    """A ZIP of the files that a tokenizer is loaded from; the same bytes for the same card."""
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": card.bos_token or None,
        "eos_token": card.eos_token or None,
        "add_bos_token": card.add_bos,
        "chat_template": card.chat_template or None,
        "model_max_length": card.context_length,
    }
    model = {
        "model_type": card.architecture,
        "eos_token_id": list(card.eos_token_ids),
        "max_position_embeddings": card.context_length,
        "vocab_size": card.vocab_size,
    }
    files = {
        "tokenizer.json": card.tokenizer,
        "tokenizer_config.json": json.dumps(settings),
        "config.json": json.dumps(model),
    }
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as writer:
        for name, text in files.items():
            writer.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)
    return archive.getvalue()


def archive_chunks(archive: bytes) -> Iterator[common.GetTokenizerChunk]:
    """The archive in parts; the last one tells its SHA-256."""
    for start in range(0, len(archive), _CHUNK):
        part = archive[start : start + _CHUNK]
        last = start + _CHUNK >= len(archive)
        fingerprint = hashlib.sha256(archive).hexdigest() if last else ""
        yield common.GetTokenizerChunk(data=part, sha256=fingerprint)
