"""The block pool: states of a block, the LRU of contents, and what its audit notices."""

import pytest

from surgetank.engine.kv.pool import BlockPool, KVError, NoBlockError


def test_blocks_move_between_free_used_and_cached() -> None:
    pool = BlockPool(3)
    named, plain = pool.take(), pool.take()
    pool.fill(named, 8)
    pool.fill(plain, 5)
    pool.publish(named, b"name")
    assert (pool.used, pool.cached, pool.free, pool.stored_tokens) == (2, 0, 1, 13)
    pool.release(named)
    pool.release(plain)
    assert (pool.used, pool.cached, pool.free, pool.stored_tokens) == (0, 1, 2, 0)
    assert pool.find(b"name") == named
    pool.share(named)
    assert (pool.used, pool.cached, pool.stored_tokens) == (1, 0, 8)
    assert pool.faults([[named]]) == []


def test_the_least_recently_used_contents_go_first_and_only_when_nothing_is_free() -> None:
    pool = BlockPool(3)
    blocks = [pool.take() for _ in range(3)]
    for block, digest in zip(blocks, (b"a", b"b", b"c")):
        pool.publish(block, digest)
    for block in (blocks[1], blocks[0], blocks[2]):
        pool.release(block)
    pool.share(blocks[1])  # used again, so it is now the youngest
    pool.release(blocks[1])
    assert [pool.take(), pool.take()] == [blocks[0], blocks[2]]
    assert (pool.find(b"a"), pool.find(b"b"), pool.find(b"c")) == (None, blocks[1], None)


def test_equal_contents_keep_the_first_block_under_their_name() -> None:
    pool = BlockPool(2)
    first, second = pool.take(), pool.take()
    pool.publish(first, b"same")
    pool.publish(second, b"same")
    pool.release(second)
    assert (pool.find(b"same"), pool.cached, pool.free) == (first, 0, 1)


def test_every_misuse_is_an_error() -> None:
    pool = BlockPool(1)
    block = pool.take()
    with pytest.raises(NoBlockError, match="no block left of 1"):
        pool.take()
    pool.release(block)
    with pytest.raises(KVError, match="released more often"):
        pool.release(block)
    with pytest.raises(KVError, match="nothing to share"):
        pool.share(block)


def test_the_audit_sees_a_leak_and_a_lost_reference() -> None:
    pool = BlockPool(4)
    block = pool.take()
    assert pool.faults([]) == [f"block {block}: 1 references counted, 0 held"]
    assert pool.faults([[block], [block]]) == [f"block {block}: 1 references counted, 2 held"]
    pool.stored_tokens += 3
    assert pool.faults([[block]]) == ["3 tokens counted as stored, 0 found"]
