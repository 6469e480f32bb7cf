"""Who may ask, and as whom: keys, trusted proxies, classes; and what a file of keys may be."""

import random
from pathlib import Path

import pytest
from tests.admission.rig import Rig, refused

from surgetank.admission.arrival import Arrival, Problem, read_arrival
from surgetank.admission.tenants import Tenants, TenantsConfig, TenantsError
from surgetank.telemetry.vocabulary import Outcome, Priority, Reason

KEY, OTHER = "sk-acme-0001", "sk-bolt-0001"
CONFIG = {
    "keys": [{"key": KEY, "tenant": "acme"}, {"key": OTHER, "tenant": "bolt"}],
    "trusted_proxies": ["10.0.0.0/8", "fd00::/8"],
    "classes": {
        "acme": {"highest": "critical", "lowest": "default"},
        "bolt": {"highest": "batch"},
    },
}


def tenants(**changes: object) -> Tenants:
    return Tenants(TenantsConfig.model_validate(CONFIG | changes), random.Random(1))


def read(*headers: tuple[str, str], peer: str = "192.0.2.1", who: Tenants | None = None) -> Arrival:
    return read_arrival(headers, rng=random.Random(1), tenants=who or tenants(), peer=peer)


def bearer(key: str) -> tuple[str, str]:
    return ("authorization", f"Bearer {key}")


def test_a_key_names_its_tenant() -> None:
    assert (read(bearer(KEY)).tenant, read(bearer(KEY)).barred) == ("acme", "")
    assert read(("X-Api-Key", OTHER)).tenant == "bolt"
    assert read(("x-api-key", OTHER), bearer(KEY)).tenant == "acme"
    assert read(("Authorization", f"bearer  {OTHER}")).tenant == "bolt"


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ((), "an API key is needed"),
        ((bearer(""),), "an API key is needed"),
        ((bearer("sk-acme-0002"),), "the API key is not known"),
        ((("x-api-key", "sk-acme-0002"),), "the API key is not known"),
        ((bearer(KEY + "é"),), "the API key is not known"),
        ((("authorization", f"Basic {KEY}"),), "the API key is not known"),
        ((bearer(KEY), bearer(OTHER)), "an API key is needed"),
    ],
)
def test_without_a_known_key_nobody_may_ask(headers: tuple[tuple[str, str], ...], why: str) -> None:
    seen = read(*headers)
    assert seen.barred.startswith(why)
    assert seen.tenant == ""


def test_without_keys_everybody_may_and_is_nobody() -> None:
    seen = read(bearer("unused"), who=Tenants(TenantsConfig(), random.Random(1)))
    assert (seen.tenant, seen.barred, seen.priority) == ("", "", Priority.DEFAULT)
    assert not seen.ignored
    assert not read(who=tenants(keys=[])).barred  # only proxies are configured


@pytest.mark.parametrize("peer", ["10.9.8.7", "fd00::1", "::ffff:10.9.8.7"])
def test_a_trusted_proxy_speaks_for_any_tenant(peer: str) -> None:
    named = ("x-gateway-inference-fairness-id", "carol")
    assert (read(named, peer=peer).tenant, read(named, peer=peer).barred) == ("carol", "")
    both = read(named, bearer(KEY), peer=peer)
    assert both.tenant == "carol"
    assert read(bearer(KEY), peer=peer).tenant == "acme"
    assert read(bearer("its own"), peer=peer).barred == ""


@pytest.mark.parametrize("peer", ["11.0.0.1", "fe80::1", "", "/run/proxy.sock"])
def test_nobody_else_speaks_for_another(peer: str) -> None:
    named = ("x-smg-tenant-id", "bolt")
    seen = read(named, bearer(KEY), peer=peer)
    assert seen.tenant == "acme"
    assert seen.ignored == {("x-smg-tenant-id", Problem.UNTRUSTED): 1}
    assert not read(("x-smg-tenant-id", "acme"), bearer(KEY), peer=peer).ignored  # its own


@pytest.mark.parametrize(
    ("key", "claim", "priority", "problem"),
    [
        (KEY, None, Priority.CRITICAL, None),
        (KEY, "default", Priority.DEFAULT, None),
        (KEY, "batch", Priority.DEFAULT, Problem.OUT_OF_RANGE),
        (OTHER, None, Priority.BATCH, None),
        (OTHER, "critical", Priority.BATCH, Problem.RAISED),
        (OTHER, "sheddable", Priority.SHEDDABLE, None),
    ],
)
def test_the_tenant_bounds_the_class(
    key: str, claim: str | None, priority: Priority, problem: Problem | None
) -> None:
    claims = () if claim is None else (("x-surgetank-priority", claim),)
    seen = read(bearer(key), *claims)
    assert seen.priority is priority
    assert list(seen.ignored) == ([("x-surgetank-priority", problem)] if problem else [])
    ticket = seen.ticket("grpc", 0.0)
    ticket.lower(Priority.SHEDDABLE)  # the body's word, later
    assert ticket.priority is (Priority.DEFAULT if key == KEY else Priority.SHEDDABLE)


def test_keys_may_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    file.write_text(f'[[keys]]\nkey = "{KEY}"\ntenant = "acme"\n')
    who = tenants(keys=[], keys_file=file)
    assert read(bearer(KEY), who=who).tenant == "acme"
    assert read(bearer(OTHER), who=who).barred


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "No such file"),
        ("not toml", "not a TOML file"),
        ('[[keys]]\nkey = "hush"\ntenant = "acme"\n', "keys.0.key: Value should have at least 8"),
        (f'[[keys]]\nkey = "{KEY}"\n', "keys.0.tenant: Field required"),
        ('[[keys]]\nkey = "hush hush"\ntenant = "acme"\n', "printable ASCII without blanks"),
        ('[[keys]]\nkey = "hushhushé"\ntenant = "acme"\n', "printable ASCII without blanks"),
    ],
)
def test_a_bad_file_is_one_sentence_without_a_key(
    tmp_path: Path, text: str | None, message: str
) -> None:
    file = tmp_path / "keys.toml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(TenantsError, match=r"keys\.toml: ") as caught:
        tenants(keys_file=file)
    assert message in str(caught.value)
    assert "hush" not in str(caught.value)
    assert KEY not in str(caught.value)


def test_one_key_is_not_two_tenants() -> None:
    keys = [{"key": KEY, "tenant": "acme"}, {"key": KEY, "tenant": "bolt"}]
    with pytest.raises(TenantsError, match="one key is that of acme and of bolt"):
        tenants(keys=keys)


def test_the_desk_turns_the_unknown_away_whatever_its_door_does() -> None:
    rig = Rig(tenants=tenants())
    refusal = refused(rig.send(headers=[bearer("sk-nobody-0001")]))
    assert (refusal.outcome, refusal.reason) == (Outcome.UNAUTHENTICATED, Reason.API_KEY)
    assert refusal.http_status == 401
    assert refusal.retry_after is None
    assert rig.recorder.totals().outcomes[Outcome.UNAUTHENTICATED] == 1
    assert rig.send(headers=[bearer(KEY)]).refusal is None
    assert rig.desk.barred([bearer(KEY)], "") is None
    assert rig.desk.barred([], "") is not None
    rig.check_conservation()
