"""A prompt asked of a gRPC door by tritonclient, plain and streamed; prints both answers as JSON.

A process of its own: tritonclient's stubs and ours are of one package, of which one process may
have but one copy. Arguments: address, prompt, sampling parameters.
"""

import json
import queue
import sys
from typing import Any

import numpy as np
import tritonclient.grpc as triton

_WITHIN = 60.0  # seconds for each part


def main(address: str, prompt: str, sampling: str) -> None:
    given = {"text_input": prompt, "sampling_parameters": sampling}
    inputs = [triton.InferInput(name, [1], "BYTES") for name in given]
    for tensor, value in zip(inputs, given.values(), strict=True):
        tensor.set_data_from_numpy(np.array([value], dtype=object))
    flags = [triton.InferInput(name, [1], "BOOL") for name in ("exclude_input_in_output", "stream")]
    for flag in flags:
        flag.set_data_from_numpy(np.array([True]))
    with triton.InferenceServerClient(address) as client:
        whole = client.infer("default", [*inputs, flags[0]])
        parts: queue.Queue[Any] = queue.Queue()
        client.start_stream(lambda result, error: parts.put(error or result))
        client.async_stream_infer("default", [*inputs, *flags])
        streamed, final = b"", False
        while not final:
            part = parts.get(timeout=_WITHIN)
            streamed += part.as_numpy("text_output")[0]
            final = part.get_response().parameters["triton_final_response"].bool_param
    answers = {"whole": whole.as_numpy("text_output")[0].decode(), "streamed": streamed.decode()}
    sys.stdout.write(json.dumps(answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
