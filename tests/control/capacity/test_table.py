"""Every model of the shipped table agrees with its published sizes."""

from typing import Any

import pytest

from surgetank.control.capacity.config_json import read_config
from surgetank.control.capacity.kv import lay_out
from surgetank.control.capacity.sources import find_model, table
from surgetank.control.capacity.units import GIB, CapacityError
from surgetank.control.capacity.weights import weigh


@pytest.mark.parametrize("entry", table(), ids=lambda entry: str(entry["name"]))
def test_published_sizes(entry: dict[str, Any]) -> None:
    model = read_config(entry["config"], entry["name"], entry["source"])
    published = entry["published"]
    layout = lay_out(model, tp=1, kv_width=2, state_width=2, block_size=16)
    assert layout.token_bytes == published["kv_bytes_per_token"]
    if published["parameters_billion"] is not None:
        assert model.parameters / 1e9 == pytest.approx(
            published["parameters_billion"], abs=5.1e-4, rel=1e-4
        )
    if published["weights_gib"] is not None:
        weights = weigh(model, "bfloat16", tp=1)
        assert weights.rank / GIB == pytest.approx(published["weights_gib"], abs=0.0101)


def test_every_entry_says_where_it_comes_from() -> None:
    assert len(table()) == 32
    assert all(entry["source"] for entry in table())


@pytest.mark.parametrize(
    "name", ["Llama-3.1-8B", "llama-3.1-8b", "meta-llama/Llama-3.1-8B", "DeepSeek-R1"]
)
def test_a_name_is_found_whatever_its_case_or_organisation(name: str) -> None:
    assert find_model(name).parameters > 8e9


def test_a_near_miss_is_answered_with_the_near_names() -> None:
    with pytest.raises(
        CapacityError, match=r"'Lama-3.1-8B' is not known; did you mean Llama-3.1-8B"
    ):
        find_model("Lama-3.1-8B")


def test_the_whole_table_is_listed_when_nothing_is_near() -> None:
    with pytest.raises(CapacityError, match=r"known: DeepSeek-R1, .*, phi-2$"):
        find_model("zzzzzz")
