"""Our messages are byte for byte those of the protocol, and the committed stubs those of the file.

tritonclient's stubs define the same package, so they are loaded in a process of their own.
"""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, json_format
from tests.admission.doors.grpc.rig import ask

from surgetank.admission.doors.grpc import inference_pb2 as pb

ROOT = Path(__file__).parents[4]
PROTO = "surgetank/admission/doors/grpc/inference.proto"

THEIRS = """
import json, sys
from google.protobuf import descriptor_pb2, json_format
from tritonclient.grpc import model_config_pb2, service_pb2
task = json.load(sys.stdin)
files = []
for module in (service_pb2, model_config_pb2):
    file = descriptor_pb2.FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    files.append(file.SerializeToString().hex())
message = service_pb2.ModelInferRequest.FromString(bytes.fromhex(task["request"]))
stream = json_format.ParseDict(task["stream"], service_pb2.ModelStreamInferResponse())
json.dump({
    "files": files,
    "request": json_format.MessageToDict(message, preserving_proto_field_name=True),
    "stream": stream.SerializeToString().hex(),
}, sys.stdout)
"""


def theirs(**task: Any) -> Any:
    """What tritonclient's stubs say."""
    done = subprocess.run(
        [sys.executable, "-c", THEIRS],
        input=json.dumps(task),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return json.loads(done.stdout)


def messages(file: descriptor_pb2.FileDescriptorProto) -> dict[str, Any]:
    """Every message of a file, nested ones too, as field name -> (number, label, type, of)."""
    found: dict[str, Any] = {}

    def visit(prefix: str, message: descriptor_pb2.DescriptorProto) -> None:
        name = f"{prefix}.{message.name}"
        found[name] = {f.name: (f.number, f.label, f.type, f.type_name) for f in message.field}
        for nested in message.nested_type:
            visit(name, nested)

    for message in file.message_type:
        visit(file.package, message)
    return found


def methods(file: descriptor_pb2.FileDescriptorProto) -> dict[str, tuple[str, str, bool, bool]]:
    """A file's one service: method -> request, response, and which of them stream."""
    return {
        m.name: (m.input_type, m.output_type, m.client_streaming, m.server_streaming)
        for m in file.service[0].method
    }


def test_every_field_and_method_is_the_protocols_own() -> None:
    ours = descriptor_pb2.FileDescriptorProto()
    pb.DESCRIPTOR.CopyToProto(ours)
    service, config = (
        descriptor_pb2.FileDescriptorProto.FromString(bytes.fromhex(file))
        for file in theirs(request="", stream={})["files"]
    )
    known = messages(service) | messages(config)
    for name, fields in messages(ours).items():
        for field, shape in fields.items():
            assert known[name][field] == shape, f"{name}.{field}"
    served, known_methods = methods(ours), methods(service)
    assert len(served) == 10
    assert {name: known_methods[name] for name in served} == served
    values = {v.name: v.number for v in config.enum_type[0].value}
    assert {v.name: v.number for v in ours.enum_type[0].value} == values


def test_messages_cross_both_ways() -> None:
    request = ask("hé", request_id="7", raw=False, stream=True)
    request.parameters["priority"].uint64_param = 3
    stream = pb.ModelStreamInferResponse(error_message="no")
    stream.infer_response.outputs.add(name="text_output", datatype="BYTES", shape=[2])
    stream.infer_response.raw_output_contents.append(b"\1\0\0\0a")
    as_dict = json_format.MessageToDict(stream, preserving_proto_field_name=True)
    crossed = theirs(request=request.SerializeToString().hex(), stream=as_dict)
    assert crossed["request"] == json_format.MessageToDict(
        request, preserving_proto_field_name=True
    )
    assert pb.ModelStreamInferResponse.FromString(bytes.fromhex(crossed["stream"])) == stream


@pytest.mark.skipif(
    importlib.util.find_spec("grpc_tools") is None,
    reason="grpcio-tools is not installed, so the .proto file cannot be compiled to compare",
)
def test_stubs_are_those_of_the_proto_file(tmp_path: Path) -> None:
    out = tmp_path / "compiled"
    command = ["-m", "grpc_tools.protoc", "-I", str(ROOT / "src"), f"--descriptor_set_out={out}"]
    subprocess.run([sys.executable, *command, str(ROOT / "src" / PROTO)], check=True, timeout=60)
    (compiled,) = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file
    committed = descriptor_pb2.FileDescriptorProto()
    pb.DESCRIPTOR.CopyToProto(committed)
    compiled.ClearField("source_code_info")
    for message in [*compiled.message_type, *committed.message_type]:
        _drop_json_names(message)
    assert compiled == committed


def _drop_json_names(message: descriptor_pb2.DescriptorProto) -> None:
    """protoc writes them into descriptor sets and leaves them out of Python stubs."""
    for field in message.field:
        field.ClearField("json_name")
    for nested in message.nested_type:
        _drop_json_names(nested)
