"""Our messages are field for field those of the published package, and the stubs those of the file.

The package's stubs register the same names, so they are loaded in a process of their own.
"""

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from surgetank.engine.protocols import smg_common_pb2 as common
from surgetank.engine.protocols import vllm_engine_pb2 as engine

ROOT = Path(__file__).parents[3]
PYTHON = ROOT / ".venv-smg/bin/python"
OURS = [common.DESCRIPTOR, engine.DESCRIPTOR]

THEIRS = """
import sys
from google.protobuf import descriptor_pb2
from smg_grpc_proto.generated import common_pb2, vllm_engine_pb2
files = descriptor_pb2.FileDescriptorSet()
for module in (common_pb2, vllm_engine_pb2):
    module.DESCRIPTOR.CopyToProto(files.file.add())
sys.stdout.buffer.write(files.SerializeToString())
"""


def proto(descriptor: Any) -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto()
    descriptor.CopyToProto(file)
    return file


def fields(file: descriptor_pb2.FileDescriptorProto) -> dict[str, Any]:
    """Each field of each message: number, label, type, whose message, whether it has presence."""
    return {
        f"{file.package}.{message.name}.{each.name}": (
            *(each.number, each.label, each.type, each.type_name, each.proto3_optional),
            message.oneof_decl[each.oneof_index].name if each.HasField("oneof_index") else None,
        )
        for message in file.message_type
        for each in message.field
    }


def methods(file: descriptor_pb2.FileDescriptorProto) -> dict[str, Any]:
    return {
        each.name: (each.input_type, each.output_type, each.server_streaming)
        for service in file.service
        for each in service.method
    }


@pytest.mark.skipif(not PYTHON.exists(), reason="smg is not installed; make smg brings it")
def test_every_field_and_method_is_the_packages_own() -> None:
    done = subprocess.run([PYTHON, "-c", THEIRS], capture_output=True, check=True, timeout=60)
    theirs = descriptor_pb2.FileDescriptorSet.FromString(done.stdout).file
    for ours, published in zip(map(proto, OURS), theirs):
        known = fields(published)
        for name, shape in fields(ours).items():
            assert known[name] == shape, name
        served = methods(ours)
        assert {name: methods(published)[name] for name in served} == served
    assert len(methods(proto(engine.DESCRIPTOR))) == 9


@pytest.mark.skipif(
    importlib.util.find_spec("grpc_tools") is None,
    reason="grpcio-tools is not installed, so the .proto files cannot be compiled to compare",
)
def test_stubs_are_those_of_the_proto_files(tmp_path: Path) -> None:
    out = tmp_path / "compiled"
    sources = [str(ROOT / "src" / each.name) for each in OURS]
    command = ["-m", "grpc_tools.protoc", "-I", str(ROOT / "src"), f"--descriptor_set_out={out}"]
    subprocess.run([sys.executable, *command, *sources], check=True, timeout=60)
    compiled = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file
    for file, committed in zip(compiled, map(proto, OURS)):
        for message in [*file.message_type, *committed.message_type]:
            drop_json_names(message)
        assert file == committed


def drop_json_names(message: descriptor_pb2.DescriptorProto) -> None:
    """protoc writes them into descriptor sets and leaves them out of Python stubs."""
    for field in message.field:
        field.ClearField("json_name")
    for nested in message.nested_type:
        drop_json_names(nested)
