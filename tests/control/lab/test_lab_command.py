"""`surgetank lab` from the outside: JSON, reports that are the same every time, plain errors."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from surgetank.admission.leases.config import TenantQuota
from surgetank.control.cli import main
from surgetank.control.lab.behaviour import BEHAVIOURS
from surgetank.control.lab.faults import FaultKind

SHORT = ["--duration", "5", "--engine", "max_num_seqs=16", "--engine", "max_batch_tokens=256"]


def lab(*words: str) -> Result:
    return CliRunner().invoke(main, ["lab", *words])


def test_run_tells_what_happened_as_json() -> None:
    done = lab("run", *SHORT, "--load", "0.5", "--policy", "none", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)["runs"][0]
    assert told["policy"] == "none"
    assert told["success"] == 1.0
    assert told["attempts_per_call"] == 1.0


def test_compare_prints_a_row_for_each_policy() -> None:
    done = lab("compare", *SHORT, "--load", "2", "--policies", "none,ours,oracle")
    assert done.exit_code == 0, done.output
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == ["none", "ours", "oracle"]


def test_the_same_seed_writes_the_same_bytes(tmp_path: Path) -> None:
    for folder in ("one", "two", "three"):
        done = lab(
            "compare", *SHORT, "--load", "2", "--policies", "none,ours", "--fault", "stall@2+1",
            "--client", "immediate-3:2", "--client", "obedient:1", "--sidecars", "2",
            "--stream", "tenant=a,share=3", "--stream", "tenant=b,priority=batch,arrivals=gamma",
            "--seed", "8" if folder == "three" else "7", "--out", str(tmp_path / folder),
        )  # fmt: skip
        assert done.exit_code == 0, done.output
    for name in ("report.json", "report.png", "report.html"):
        one, two, three = ((tmp_path / f / name).read_bytes() for f in ("one", "two", "three"))
        assert one == two
        assert one != three
    page = (tmp_path / "one" / "report.html").read_text()
    assert 'src="data:image/png;base64,' in page
    assert "http" not in page  # it needs nothing else
    told = json.loads((tmp_path / "one" / "report.json").read_text())
    assert [group["name"] for group in told["runs"][1]["tenants"]] == ["a", "b"]


def test_a_kind_of_client_can_be_changed() -> None:
    slow = [*SHORT, "--engine", "max_num_seqs=1", "--load", "3", "--policy", "none", "--json"]
    for retries in (0, 2):
        done = lab(
            "run", *slow, "--client", f"openai,retries={retries},timeout=.001,streams=false:2"
        )
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["runs"][0]["attempts_per_call"] == 1 + retries


@pytest.mark.parametrize("command", ["run", "compare"])
def test_help_names_every_kind_of_client_and_of_fault(command: str) -> None:
    told = re.sub(r"\s+", "", lab(command, "--help").stdout)
    for word in (*BEHAVIOURS, *FaultKind, *TenantQuota.model_fields):
        assert word in told


def test_replays_a_trace(tmp_path: Path) -> None:
    trace = tmp_path / "t.replay.jsonl"
    trace.write_text("\n".join(f'{{"t": {n / 10}, "in": 50, "out": 5}}' for n in range(50)))
    done = lab("run", "--input", str(trace), "--speed", "2", "--policy", "none", "--json")
    assert json.loads(done.stdout)["runs"][0]["calls"] == 50


def test_fit_of_a_file_that_is_none(tmp_path: Path) -> None:
    done = lab("fit", str(tmp_path / "none.jsonl"), "--json")
    assert done.exit_code == 2
    assert json.loads(done.stdout)["error"]["code"] == "invalid"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "--policy", "best"], "no policy 'best'; there are: ours"),
        (["run", "--client", "rude"], "no client 'rude'; there are: patient"),
        (["run", "--client", "openai,retries=many"], "client retries is 'many': Input should be"),
        (["run", "--client", "openai,mood=bad"], "client mood is 'bad': Extra inputs"),
        (["run", "--fault", "stall@3"], "not of the form KIND@AT+SECONDS"),
        (["run", "--fault", "redis-loss@3"], "not of the form KIND@AT+SECONDS"),
        (["run", "--fault", "slow@1+1x0.5"], "slow@1+1x0.5': value of slow is 0.5; allowed: 1 to"),
        (["run", "--quota", "tenant=a,rpm=3"], "quota rpm is '3': Extra inputs"),
        (["run", "--quota", "concurrency=0"], "quota concurrency is '0': Input should be greater"),
        (["run", "--leases", "hold=99"], "leases hold is '99': Input should be less"),
        (["run", "--leases", "url=redis://x"], "leases url: the lab has a Redis of its own"),
        (["run", "--engine", "max_num_seqs=0"], "engine max_num_seqs is '0'"),
        (["run", "--gate", "queue=5"], "gate queue is '5': Extra inputs"),
        (["run", "--slo", "ttft"], "slo 'ttft' is not of the form key=value"),
        (["run", "--stream", "priority=first"], "priorities: critical, default"),
        (["run", "--input", "/nowhere.csv"], "/nowhere.csv: "),
        (["run", "--duration", "0"], "duration is 0; allowed"),
        (["headline", "--only", "speed"], "no experiment 'speed'; there are"),
        (["headline", "--seeds", "1,-2"], "seed is '-2'; allowed: whole numbers"),
    ],
)
def test_wrong_words_are_one_sentence_and_exit_code_2(words: list[str], said: str) -> None:
    done = lab(*words)
    assert done.exit_code == 2
    assert done.stderr.startswith("surgetank: ")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
