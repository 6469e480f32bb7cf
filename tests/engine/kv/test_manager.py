"""The KV manager: prefix hits, copy-on-write, and what an admission takes or leaves."""

import pytest

from surgetank.engine.kv.manager import BlockTable, KVManager
from surgetank.engine.kv.prefix import extend_digests


def stored(kv: KVManager, tokens: list[int]) -> BlockTable:
    """A table that was admitted and holds all of `tokens`."""
    table = BlockTable()
    assert kv.admit(table, tokens)
    kv.fill(table, tokens, len(tokens) - table.stored)
    return table


@pytest.mark.parametrize(
    ("length", "hits"), [(7, 0), (8, 0), (9, 8), (16, 8), (17, 16), (20, 16), (40, 32)]
)
def test_full_blocks_of_a_prompt_are_found_but_never_its_last_token(length: int, hits: int) -> None:
    kv = KVManager(blocks=16, block_size=8)
    tokens = list(range(length))
    kv.release(stored(kv, tokens))
    again = BlockTable()
    assert kv.admit(again, tokens)
    assert again.stored == hits


def test_a_hit_ends_at_the_first_different_token_and_needs_the_same_beginning() -> None:
    kv = KVManager(blocks=32, block_size=8)
    kv.release(stored(kv, list(range(32))))
    branch, shifted = BlockTable(), BlockTable()
    assert kv.admit(branch, [*range(16), 99, *range(17, 40)])
    assert branch.stored == 16
    assert kv.admit(shifted, [99, *range(1, 40)])  # the second block's tokens match, not its past
    assert shifted.stored == 0


def test_generated_tokens_serve_the_next_turn_of_a_chat() -> None:
    kv = KVManager(blocks=16, block_size=8)
    tokens = list(range(10))
    table = stored(kv, tokens)
    for token in range(10, 24):
        assert kv.grow(table) is None
        tokens.append(token)
        kv.fill(table, tokens, 1)
    kv.release(table)
    turn = BlockTable()
    assert kv.admit(turn, [*tokens, 100, 101])
    assert turn.stored == 24


def test_admission_takes_nothing_when_it_does_not_fit_and_counts_revived_blocks() -> None:
    kv = KVManager(blocks=4, block_size=8)
    kv.release(stored(kv, list(range(16))))  # 2 cached, 2 free
    table = BlockTable()
    assert not kv.admit(table, list(range(40)))  # 2 found, 3 more
    assert not kv.admit(table, list(range(32)), spare=1)
    assert (table.blocks, kv.pool.used, kv.pool.cached) == ([], 0, 2)
    assert kv.admit(table, list(range(32)))
    assert (table.stored, kv.pool.used, kv.pool.cached) == (16, 4, 0)


def test_a_fork_shares_until_it_writes_and_the_last_owner_writes_in_place() -> None:
    kv = KVManager(blocks=8, block_size=8)
    tokens = list(range(12))
    first = stored(kv, tokens)
    second, third = kv.fork(first), kv.fork(first)
    assert (kv.pool.used, kv.pool.stored_tokens) == (2, 12)
    shared = first.blocks[1]
    assert [kv.needs(each) for each in (first, second, third)] == [1, 1, 1]
    assert kv.grow(first) == (shared, first.blocks[1])
    assert kv.grow(second) == (shared, second.blocks[1])
    assert (kv.needs(third), kv.grow(third)) == (0, None)
    assert third.blocks[1] == shared
    assert (kv.pool.used, kv.pool.stored_tokens) == (4, 8 + 3 * 4)
    assert kv.faults([first, second, third]) == []


def test_a_fork_at_a_block_boundary_copies_nothing() -> None:
    kv = KVManager(blocks=8, block_size=8)
    first = stored(kv, list(range(16)))
    second = kv.fork(first)
    assert kv.grow(first) is None
    assert kv.grow(second) is None
    assert first.blocks[:2] == second.blocks[:2]
    assert first.blocks[2] != second.blocks[2]


def test_what_was_built_on_a_prefix_is_forgotten_before_the_prefix() -> None:
    kv = KVManager(blocks=4, block_size=8)
    kv.release(stored(kv, list(range(32))))
    other = BlockTable()
    assert kv.admit(other, list(range(100, 116)))  # takes two of the four cached blocks
    kv.release(other)
    again = BlockTable()
    assert kv.admit(again, list(range(32)))
    assert again.stored == 16


def test_a_digest_depends_on_everything_before_it() -> None:
    one = extend_digests([], [1, 2, 3, 4], 2, 2)
    other = extend_digests([], [9, 2, 3, 4], 2, 2)
    assert one[1] != other[1]
    assert extend_digests(one[:1], [1, 2, 3, 4], 2, 2) == one
