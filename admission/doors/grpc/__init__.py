"""The KServe v2 / Triton gRPC door, with health, reflection and channelz.

`inference_pb2.py` and `inference_pb2.pyi` are generated from `inference.proto` and committed. To
regenerate them, from the repository root, in an environment of its own (grpcio-tools 1.76 writes
code for protobuf 6.31, which every later 6.x and 7.x runtime loads):

    python3.11 -m venv /tmp/protoc
    /tmp/protoc/bin/pip install grpcio-tools==1.76.0 mypy-protobuf==3.7.0
    /tmp/protoc/bin/python -m grpc_tools.protoc -I src \\
        --plugin=protoc-gen-mypy=/tmp/protoc/bin/protoc-gen-mypy \\
        --python_out=src --mypy_out=src src/surgetank/admission/doors/grpc/inference.proto
"""
