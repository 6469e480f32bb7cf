"""Whole runs whose sidecars share tenants' quotas, while their Redis is lost or forgets."""

import random
from dataclasses import asdict
from pathlib import Path

import pytest
from click.testing import CliRunner

from surgetank.admission.leases.config import LeasesConfig, TenantQuota
from surgetank.control.cli import main
from surgetank.control.lab.faults import Fault, FaultKind
from surgetank.control.lab.inputs import Item, Mix, merged, synthetic
from surgetank.control.lab.log import REASONS
from surgetank.control.lab.world import Run, Scenario, play
from surgetank.telemetry.vocabulary import Reason

END, RATE, TOKENS, SLOTS = 80.0, 5.0, 2000.0, 6
LOSS = Fault(kind=FaultKind.REDIS_LOSS, at=15.0, seconds=25.0)
RESTART = Fault(kind=FaultKind.REDIS_RESTART, at=55.0)
QUOTAS = {
    "requests": TenantQuota(requests_per_minute=60 * RATE),
    "tokens": TenantQuota(tokens_per_minute=60 * TOKENS),
    "slots": TenantQuota(concurrency=SLOTS),
}
MIX = Mix(prompt_median=100, prompt_sigma=0.5, output_median=40, max_tokens=64)


def calls() -> list[Item]:
    """Far more of each tenant than its quota, and one that has none."""
    parts = [*((tenant, 15.0) for tenant in QUOTAS), ("free", 3.0)]
    mixes = [(MIX.model_copy(update={"tenant": tenant}), each) for tenant, each in parts]
    rng = random.Random(5)
    return merged(*(synthetic(mix, each, 0.0, END, rng) for mix, each in mixes))


def scenario(*faults: Fault, sidecars: int = 4) -> Scenario:
    leases = LeasesConfig(sidecars=sidecars, tenants=QUOTAS)
    return Scenario(leases=leases, sidecars=sidecars, faults=faults, engines="own", tail=10.0)


def let_in(run: Run, tenant: str) -> list[tuple[float, float, float]]:
    """When each admitted attempt came and ended, and what it may cost at least, in tokens."""
    rows, asked = run.log.attempts, run.log.calls
    of = dict(zip(asked.number, asked.tenant, strict=True))
    prompts = dict(zip(asked.number, asked.prompt, strict=True))
    number = run.log.tenants.index(tenant)
    found = zip(rows.call, rows.at, rows.ended, rows.admitted, rows.tokens, strict=True)
    mine = ((c, at, ended, tokens) for c, at, ended, ok, tokens in found if ok and of[c] == number)
    return sorted((at, ended, float(prompts[call] + tokens)) for call, at, ended, tokens in mine)


def most_over(used: list[tuple[float, float]], rate: float) -> float:
    """The most that any window holds beyond its seconds times `rate`."""
    level = most = last = 0.0
    for at, amount in used:
        level = max(0.0, level - rate * (at - last)) + amount
        most, last = max(most, level), at
    return most


@pytest.mark.parametrize("faults", [(), (LOSS, RESTART)])
def test_quotas_hold_over_all_sidecars_in_every_window(faults: tuple[Fault, ...]) -> None:
    run = play(scenario(*faults), calls())
    requests = [(at, 1.0) for at, _, _ in let_in(run, "requests")]
    assert most_over(requests, RATE) <= 10 * RATE + 1
    assert len(requests) >= 0.9 * RATE * END
    tokens = [(at, amount) for at, _, amount in let_in(run, "tokens")]
    assert most_over(tokens, TOKENS) <= 10 * TOKENS + 1000
    edges = [(at, 1) for at, _, _ in let_in(run, "slots")]
    edges += [(ended, -1) for _, ended, _ in let_in(run, "slots")]
    open_now, most = 0, 0
    for _, change in sorted(edges):
        open_now += change
        most = max(most, open_now)
    assert SLOTS - 2 <= most <= SLOTS
    refused = [REASONS[reason] for reason in run.log.attempts.reason]
    assert refused.count(Reason.TENANT_QUOTA) > 1000
    assert len(let_in(run, "free")) == run.log.calls.tenant.count(run.log.tenants.index("free"))


def test_the_same_seed_gives_the_same_rows() -> None:
    items = [item for item in calls() if item.at < 30.0]
    faults = (Fault(kind=FaultKind.REDIS_LOSS, at=5.0, seconds=14.0), RESTART)
    runs = [play(scenario(*faults), items) for _ in range(2)]
    for rows in ("calls", "attempts"):
        one, two = (asdict(getattr(run.log, rows)) for run in runs)
        assert [column.tobytes() for column in one.values()] == [
            column.tobytes() for column in two.values()
        ]


def test_the_same_seed_writes_the_same_bytes_with_faults_of_redis(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        words = [
            "run", "--duration", "20", "--rate", "20", "--sidecars", "3", "--client", "obedient",
            "--stream", "tenant=a,share=3", "--stream", "tenant=b",
            "--quota", "tenant=a,requests_per_minute=120,concurrency=8", "--leases", "hold=2",
            "--quota", "tokens_per_minute=9000", "--fault", "redis-loss@5+6",
            "--fault", "redis-restart@15", "--out", str(tmp_path / folder),
        ]  # fmt: skip
        done = CliRunner().invoke(main, ["lab", *words])
        assert done.exit_code == 0, done.output
    for name in ("report.json", "report.png", "report.html"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    page = (tmp_path / "one" / "report.html").read_text()
    assert "requests_per_minute" in page


def test_a_fault_of_redis_needs_one() -> None:
    with pytest.raises(ValueError, match="faults of redis need leases"):
        Scenario(faults=(RESTART,))
