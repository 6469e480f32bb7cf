"""Settings of an engine behind an HTTP address."""

import ssl
from enum import StrEnum
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

_PORTS = {"http": 80, "https": 443, "grpc": 50051, "grpcs": 443}
_WITH_TLS = ("https", "grpcs")


class Role(StrEnum):
    """What an engine does of a request."""

    BOTH = "both"
    PREFILL = "prefill"  # reads prompts for others: it is watched, and gets no requests
    DECODE = "decode"


def host_and_port(settings: dict[str, Any]) -> str:
    """HOST:PORT of its url"""
    parts = urlsplit(settings["url"])
    host = parts.hostname or ""
    return f"{f'[{host}]' if ':' in host else host}:{parts.port or _PORTS[parts.scheme]}"


class BackendConfig(BaseModel):
    """An engine of another maker to protect; none at all: the embedded one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str = Field(
        pattern=r"^(https?://[^/\s?#]+(/[^\s?#]*)?|grpcs?://[^/\s?#]+)$",
        description="Its address, such as http://127.0.0.1:8000; grpc://, with TLS grpcs://, for "
        "vLLM's gRPC protocol.",
    )
    name: str = Field(
        default_factory=host_and_port,
        pattern=r"^[^\s/?#]+$",
        max_length=100,
        description="What it is called in metrics, logs and commands.",
    )
    role: Role = Field(
        default=Role.BOTH,
        description="What it does of a request: prefill gets none, and is only watched.",
    )
    api_key: SecretStr = Field(
        default=SecretStr(""),
        description="Bearer token for it; empty: the client's own authorization goes through.",
    )
    ca_file: Path | None = Field(
        default=None,
        description="For https:// and grpcs://: a PEM file of the certificates that vouch for it; "
        "null: those that the system trusts, by gRPC those that it brings.",
    )
    server_name: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9.:-]+$",
        description="For https:// and grpcs://: the name that its certificate must have; null: "
        "its address's host.",
    )
    max_num_seqs: int | None = Field(
        default=None,
        ge=1,
        le=65_536,
        description="Requests that it runs at once; null: what it says, else a guess by its kind.",
    )
    pass_priority: bool = Field(
        default=False,
        description="Tell it each request's class, in the body's field priority: 0 (critical) to 3 "
        "(sheddable). Only for vLLM with --scheduling-policy priority, which refuses them without, "
        "and SGLang with --enable-priority-scheduling --schedule-low-priority-values-first.",
    )
    context_length: int | None = Field(
        default=None,
        ge=1,
        le=100_000_000,
        description="Tokens of prompt and output together; null: what it says, else no check.",
    )

    @property
    def speaks_grpc(self) -> bool:
        """vLLM's gRPC engine protocol, instead of OpenAI's HTTP."""
        return self.url.startswith("grpc")

    @property
    def tls(self) -> ssl.SSLContext | None:
        """By what its certificate is checked; None for an address without TLS."""
        if urlsplit(self.url).scheme not in _WITH_TLS:
            return None
        return ssl.create_default_context(cafile=self.ca_file)

    @property
    def credentials(self) -> tuple[tuple[str, str], ...]:
        """The header that its key goes in; none for none."""
        key = self.api_key.get_secret_value()
        return (("authorization", f"Bearer {key}"),) if key else ()

    @field_validator("ca_file")
    @classmethod
    def _holds_certificates(cls, ca_file: Path | None) -> Path | None:
        if ca_file is None:
            return None
        path = ca_file.expanduser()
        try:
            ssl.create_default_context(cafile=path)
        except OSError as error:  # those of the ssl module among them
            why = error.strerror or error
            raise ValueError(f"no certificates can be read there: {why}") from None
        return path

    @model_validator(mode="after")
    def _asks_for_tls(self) -> Self:
        scheme, given = urlsplit(self.url).scheme, self.ca_file or self.server_name
        if given and scheme not in _WITH_TLS:
            raise ValueError(
                f"ca_file, server_name: {scheme}:// has no TLS; allowed: with https://, grpcs://"
            )
        return self

    @field_validator("url")
    @classmethod
    def _names_a_place(cls, url: str) -> str:
        parts = urlsplit(url)
        if not parts.hostname or parts.port == 0:  # reading a port that is none raises ValueError
            raise ValueError("it names no host, or no port that can be reached")
        return url
