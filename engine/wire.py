"""Frames on the link between sidecar and engine: a 4-byte length, then one msgpack message."""

import struct

import msgspec

from surgetank.engine.api import Commands, Hello, StepOutput

MAX_FRAME = 256 * 1024 * 1024  # bytes; a longer length means a peer that speaks something else
_LENGTH = struct.Struct("!I")
_encoder = msgspec.msgpack.Encoder()
_commands = msgspec.msgpack.Decoder(Commands)
_from_engine = msgspec.msgpack.Decoder(Hello | StepOutput)


class WireError(Exception):
    """The peer sent what is not a frame of this protocol."""


def encode(message: Commands | Hello | StepOutput) -> bytes:
    """One frame, ready to send."""
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


class FrameReader:
    """Cuts a byte stream into frames; feed() what arrived, take the bodies that are whole."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Bodies completed by `data`; raises WireError on an impossible length."""
        self._buffer += data
        bodies = []
        start = 0
        while len(self._buffer) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer, start)
            if length > MAX_FRAME:
                raise WireError(f"frame of {length} bytes; allowed: up to {MAX_FRAME}")
            end = start + _LENGTH.size + length
            if len(self._buffer) < end:
                break
            bodies.append(bytes(self._buffer[start + _LENGTH.size : end]))
            start = end
        del self._buffer[:start]
        return bodies


def decode_commands(body: bytes) -> Commands:
    """A frame's body on the engine's side; raises WireError when it is malformed."""
    try:
        return _commands.decode(body)
    except msgspec.DecodeError as error:
        raise WireError(f"commands: {error}") from error


def decode_from_engine(body: bytes) -> Hello | StepOutput:
    """A frame's body on the sidecar's side; raises WireError when it is malformed."""
    try:
        return _from_engine.decode(body)
    except msgspec.DecodeError as error:
        raise WireError(f"from engine: {error}") from error
