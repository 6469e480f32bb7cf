"""The KV manager under any order of calls: no leak, no double free, reference counts exact."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from surgetank.engine.kv.manager import BlockTable, KVManager
from surgetank.engine.kv.pool import NoBlockError

BLOCKS, SIZE, HOST = 12, 8, 5


class Live:
    """A sequence: its tokens, its table, and a model of what each cell of its blocks must hold."""

    def __init__(self, tokens: list[int], table: BlockTable) -> None:
        self.tokens = tokens
        self.table = table


class KVMachine(RuleBasedStateMachine):
    """Moves contents as a runner would, and checks that every sequence reads back its own."""

    live: "Bundle[Live]" = Bundle("live")

    def __init__(self) -> None:
        super().__init__()
        self.kv = KVManager(BLOCKS, SIZE, HOST)
        self.cells: list[list[int | None]] = [[None] * SIZE for _ in range(BLOCKS)]
        self.host: list[list[int | None]] = [[None] * SIZE for _ in range(HOST)]
        self.sequences: list[Live] = []

    def store(self, each: Live, count: int) -> None:
        """Compute `count` tokens: write them into their cells, then say so."""
        for place in range(each.table.stored, each.table.stored + count):
            self.cells[each.table.blocks[place // SIZE]][place % SIZE] = each.tokens[place]
        self.kv.fill(each.table, each.tokens, count)

    @rule(target=live, length=st.integers(1, 40), alphabet=st.integers(1, 2))
    def alloc(self, length: int, alphabet: int) -> Live | MultipleResults[Live]:
        tokens = [place % 3 if alphabet == 1 else place for place in range(length)]
        table = BlockTable()
        free = self.kv.pool.available
        if not self.kv.admit(table, tokens):
            assert self.kv.pool.available == free
            return multiple()
        self.sequences.append(Live(tokens, table))
        return self.sequences[-1]

    @rule(each=live, share=st.floats(0, 1))
    def read(self, each: Live, share: float) -> None:
        left = len(each.tokens) - each.table.stored
        if each in self.sequences and each.table.blocks and left:
            self.store(each, max(1, int(share * left)))

    @rule(each=live, token=st.integers(0, 2))
    def append(self, each: Live, token: int) -> None:
        whole = each.table.stored == len(each.tokens)
        if each not in self.sequences or not whole:
            return
        if self.kv.needs(each.table) > max(0, self.kv.pool.available):  # a lowered limit: below 0
            with pytest.raises(NoBlockError):
                self.kv.grow(each.table)
            return
        copy = self.kv.grow(each.table)
        if copy is not None:
            source, target = copy
            self.cells[target] = list(self.cells[source])
        each.tokens.append(token)
        self.store(each, 1)

    @rule(target=live, each=live)
    def fork(self, each: Live) -> Live | MultipleResults[Live]:
        if each not in self.sequences or each.table.stored < len(each.tokens):
            return multiple()  # also while it is swapped out
        self.sequences.append(Live(list(each.tokens), self.kv.fork(each.table)))
        return self.sequences[-1]

    @rule(each=consumes(live))
    def free(self, each: Live) -> None:
        if each in self.sequences:
            self.sequences.remove(each)
            self.kv.release(each.table)

    @rule(each=live)
    def preempt(self, each: Live) -> None:
        """Give up the blocks and ask for them again: whatever is found must be right."""
        if each in self.sequences:
            self.kv.release(each.table)
            if not self.kv.admit(each.table, each.tokens):
                self.sequences.remove(each)

    @rule(each=live)
    def swap_out(self, each: Live) -> None:
        """To the host, if there is room; the blocks are anybody's afterwards."""
        if each not in self.sequences or each.table.host:
            return
        stored, room = each.table.stored, HOST - self.kv.host.used
        moves = self.kv.swap_out(each.table)
        assert (moves is None) == (not 0 < self.kv.blocks_for(stored) <= room)
        for block, host in moves or []:
            self.host[host] = list(self.cells[block])
            if self.kv.pool.references(block) == 0 and not self.kv.pool.is_cached(block):
                self.cells[block] = [None] * SIZE

    @rule(each=live)
    def swap_in(self, each: Live) -> None:
        """Back, where there is room: as much as was stored, in whatever blocks."""
        if each not in self.sequences or not each.table.host:
            return
        stored = each.table.host_stored
        lacking = self.kv.shortage(each.table, each.tokens)
        assert self.kv.admit(each.table, each.tokens) == (lacking <= 0)
        if lacking <= 0:
            for host, block in self.kv.swap_in(each.table):
                self.cells[block] = list(self.host[host])
            assert each.table.stored >= stored

    @rule(share=st.sampled_from([0.5, 1.0]))
    def resize(self, share: float) -> None:
        """The pool's limit moves; who has blocks keeps them."""
        self.kv.pool.limit = int(BLOCKS * share)

    @rule()
    def abort_all(self) -> None:
        for each in self.sequences:
            self.kv.release(each.table)
        self.sequences.clear()
        assert self.kv.pool.available == self.kv.pool.limit
        assert self.kv.host.used == 0

    @invariant()
    def nothing_is_lost(self) -> None:
        assert self.kv.faults(each.table for each in self.sequences) == []
        pool = self.kv.pool
        assert pool.used + pool.cached + pool.free == BLOCKS
        filled: dict[int, int] = {}
        for each in self.sequences:
            for place, block in enumerate(each.table.blocks):
                tokens = min(SIZE, max(0, each.table.stored - place * SIZE))
                filled[block] = max(tokens, filled.get(block, 0))
        assert pool.stored_tokens == sum(filled.values())

    @invariant()
    def everyone_reads_its_own_tokens(self) -> None:
        for each in self.sequences:
            for place in range(each.table.stored):
                block = each.table.blocks[place // SIZE]
                assert self.cells[block][place % SIZE] == each.tokens[place]


@pytest.mark.slow
def test_any_order_of_calls() -> None:
    run_state_machine_as_test(
        KVMachine, settings=settings(max_examples=200, stateful_step_count=60, deadline=None)
    )


def test_a_short_run_of_any_order_of_calls() -> None:
    run_state_machine_as_test(
        KVMachine, settings=settings(max_examples=25, stateful_step_count=40, deadline=None)
    )
