"""Whose request it is: by the API key that it bears, or by the word of a proxy of ours.

A key names its tenant. A trusted proxy has asked for keys itself: its tenant headers are believed.
Everybody else is nobody in particular, and is turned away where there are keys to ask for.
"""

import hashlib
import hmac
import ipaddress
import random
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    IPvAnyNetwork,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)

from surgetank.telemetry.vocabulary import Priority

ClassName = Literal["critical", "default", "batch", "sheddable"]
_PEERS = 4096  # addresses whose trust is remembered


class ApiKey(BaseModel):
    """One key, and whose it is. A tenant may have several: that is how a key is replaced."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: SecretStr = Field(min_length=8, description="What stands after Bearer.")
    tenant: str = Field(
        pattern=r"^[A-Za-z0-9._:@/+=-]{1,128}$", description="Whom it makes its bearer."
    )

    @field_validator("key")
    @classmethod
    def _can_be_sent(cls, key: SecretStr) -> SecretStr:
        text = key.get_secret_value()
        if not text.isascii() or not text.isprintable() or " " in text:
            raise ValueError("allowed: printable ASCII without blanks, as a header can hold it")
        return key


class Classes(BaseModel):
    """The classes of service that a tenant's requests may have."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    highest: ClassName = Field("default", description="What a request has that claims no other.")
    lowest: ClassName = Field("sheddable", description="What a request may lower itself to.")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.range[0] > self.range[1]:
            raise ValueError(f"highest is {self.highest}, lowest {self.lowest}: the other way")
        return self

    @property
    def range(self) -> tuple[Priority, Priority]:
        """Highest and lowest."""
        return Priority[self.highest.upper()], Priority[self.lowest.upper()]


class TenantsConfig(BaseModel):
    """Who may ask, and as whom; for both doors. What a tenant may use stands in leases."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    keys: tuple[ApiKey, ...] = Field(
        (), description="API keys. None at all, here or in keys_file: everybody may ask."
    )
    keys_file: Path | None = Field(
        None, description="TOML file with further [[keys]] tables; read at the start."
    )
    trusted_proxies: tuple[IPvAnyNetwork, ...] = Field(
        (), description="Networks of proxies whose tenant headers are believed, without a key."
    )
    classes: dict[str, Classes] = Field(
        default={},
        description="By tenant; for others default, which may be lowered down to sheddable.",
    )


class TenantsError(Exception):
    """The file of keys cannot be used; str() is the sentence to show, without any key."""


class _KeysFile(BaseModel):
    """What a file of keys holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    keys: tuple[ApiKey, ...]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sends a request, as far as that is proven."""

    tenant: str = ""
    trusted: bool = False  # may speak for any tenant
    barred: str = ""  # why it may not ask; empty: it may


ANYBODY = Caller()
_NO_KEY = Caller(barred="an API key is needed: Authorization: Bearer KEY, or X-API-Key: KEY")
_WRONG_KEY = Caller(barred="the API key is not known here")


class Tenants:
    """Knows keys by a keyed hash alone, so that neither time nor a dump of memory tells them."""

    def __init__(self, config: TenantsConfig, rng: random.Random) -> None:
        """Raises TenantsError for a file of keys that cannot be used, or one key of two."""
        keys = (*config.keys, *_from_file(config.keys_file))
        self._secret = rng.randbytes(32) if keys else b""
        self._tenants: dict[bytes, str] = {}
        for each in keys:
            owner = self._tenants.setdefault(self._hash(each.key.get_secret_value()), each.tenant)
            if owner != each.tenant:
                raise TenantsError(f"one key is that of {owner} and of {each.tenant}")
        self._classes = {name: classes.range for name, classes in config.classes.items()}
        self._networks = config.trusted_proxies
        self._trusts = lru_cache(_PEERS)(self._is_proxy)

    def caller(self, authorization: str | None, peer: str) -> Caller:
        """Who bears that header; `peer` is the address at the other end, "" where there is none."""
        if not self._tenants and not self._networks:
            return ANYBODY
        scheme, _, key = (authorization or "").partition(" ")
        tenant = self._tenants.get(self._hash(key.strip())) if scheme.lower() == "bearer" else None
        if self._networks and self._trusts(peer):
            return Caller(tenant or "", trusted=True)
        if not self._tenants:
            return ANYBODY
        if tenant is None:
            return _WRONG_KEY if key else _NO_KEY
        return Caller(tenant)

    def classes(self, tenant: str) -> tuple[Priority, Priority]:
        """The highest and the lowest class of that tenant's requests."""
        return self._classes.get(tenant, (Priority.DEFAULT, Priority.SHEDDABLE))

    def _hash(self, key: str) -> bytes:
        return hmac.digest(self._secret, key.encode("utf-8", "surrogateescape"), hashlib.sha256)

    def _is_proxy(self, peer: str) -> bool:
        try:
            address = ipaddress.ip_address(peer)
        except ValueError:  # a unix socket, or nobody knows
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network for network in self._networks)


def _from_file(path: Path | None) -> Iterable[ApiKey]:
    if path is None:
        return ()
    try:
        tree = tomllib.loads(path.expanduser().read_text("utf-8"))
        return _KeysFile.model_validate(tree).keys
    except OSError as error:
        raise TenantsError(f"tenants.keys_file {path}: {error.strerror or error}") from error
    except ValidationError as error:
        fault = error.errors(include_input=False)[0]
        place = ".".join(str(part) for part in fault["loc"])
        raise TenantsError(f"tenants.keys_file {path}: {place}: {fault['msg']}") from None
    except ValueError:  # neither the text nor a part of it may be shown
        raise TenantsError(f"tenants.keys_file {path}: not a TOML file in UTF-8") from None
