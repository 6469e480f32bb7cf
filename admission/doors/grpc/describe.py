"""What the door says of itself and its models: metadata, configuration, repository index."""

from surgetank import __version__
from surgetank.admission.doors.grpc import inference_pb2 as pb
from surgetank.admission.doors.grpc.query import VERSION
from surgetank.admission.doors.grpc.tensors import INPUTS, OUTPUTS, Spec
from surgetank.admission.doors.grpc.tongue import AnyDesk
from surgetank.admission.outcome import Refused
from surgetank.admission.work import Served

PLATFORM = "surgetank"
EXTENSIONS = ("model_configuration", "parameters", "schedule_policy", "statistics")

_DATA_TYPES = {
    "BYTES": pb.TYPE_STRING,
    "BOOL": pb.TYPE_BOOL,
    "FP32": pb.TYPE_FP32,
    "UINT32": pb.TYPE_UINT32,
}
# Of the model card, what a client may want to know before it asks.
_CARD_FIELDS = (
    "architecture",
    "context_length",
    "dtype",
    "engine_version",
    "max_batch_tokens",
    "max_num_seqs",
    "parameters",
    "vocab_size",
)


def server_metadata() -> pb.ServerMetadataResponse:
    """Name, version and the protocol's extensions that are served."""
    return pb.ServerMetadataResponse(name=PLATFORM, version=__version__, extensions=EXTENSIONS)


def model_metadata(name: str) -> pb.ModelMetadataResponse:
    """The model's tensors in the open protocol's words; all models here have the same."""
    return pb.ModelMetadataResponse(
        name=name,
        versions=[VERSION],
        platform=PLATFORM,
        inputs=[_tensor(name, spec) for name, spec in INPUTS.items()],
        outputs=[_tensor(name, spec) for name, spec in OUTPUTS.items()],
    )


def model_config(name: str, served: Served) -> pb.ModelConfig:
    """The same in Triton's words, with what the model card knows as parameters."""
    config = pb.ModelConfig(
        name=name,
        platform=PLATFORM,
        backend=PLATFORM,
        max_batch_size=0,
        model_transaction_policy=pb.ModelTransactionPolicy(decoupled=True),
    )
    for tensor, spec in INPUTS.items():
        config.input.add(
            name=tensor,
            data_type=_DATA_TYPES[spec.datatype],
            dims=[spec.length],
            optional=spec.optional,
        )
    for tensor, spec in OUTPUTS.items():
        config.output.add(name=tensor, data_type=_DATA_TYPES[spec.datatype], dims=[spec.length])
    for field in _CARD_FIELDS:
        config.parameters[field].string_value = str(getattr(served.card, field))
    return config


def repository_index(desk: AnyDesk, only_ready: bool) -> pb.RepositoryIndexResponse:
    """Every name that can be asked for, aliases too, and whether it can be asked now."""
    index = pb.RepositoryIndexResponse()
    for name in desk.names():
        reason = unavailable(desk, name)
        if reason is None:
            index.models.add(name=name, version=VERSION, state="READY")
        elif not only_ready:
            index.models.add(name=name, version=VERSION, state="UNAVAILABLE", reason=reason)
    return index


def unavailable(desk: AnyDesk, name: str) -> str | None:
    """Why the model cannot be asked now; None when it can."""
    try:
        desk.find(name)
    except Refused as refused:
        return refused.refusal.message
    return None


def _tensor(name: str, spec: Spec) -> pb.ModelMetadataResponse.TensorMetadata:
    return pb.ModelMetadataResponse.TensorMetadata(
        name=name, datatype=spec.datatype, shape=[spec.length]
    )
