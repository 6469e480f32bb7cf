"""How many prompt tokens the engine holds and has not read: our own count, between its reports.

A step record tells the engine's own backlog, but what was sent since, and what lies in the socket,
is not in it. So we count: + prompt on dispatch, - what a step read, - what the prefix cache held.
A request that leaves before its first token takes an unknown rest with it, and recomputed prompts
are read twice; therefore the count is held between 0 and the prompts that still await a first
token, which makes it exact again whenever that set is empty.
"""

from surgetank.telemetry.vocabulary import Priority


class PrefillBacklog:
    """Prompt tokens dispatched and unread. `tokens` never exceeds what awaits its first token."""

    def __init__(self) -> None:
        self.tokens = 0
        self._silent = dict.fromkeys(Priority, 0)  # whole prompts without a first token

    def before(self, priority: Priority) -> int:
        """Of the unread tokens, those that an engine which goes by class reads first."""
        if not self.tokens:
            return 0
        first = 0
        for each, tokens in self._silent.items():
            if each <= priority:
                first += tokens
        return min(self.tokens, first)

    def dispatched(self, priority: Priority, prompt: int) -> None:
        """A request went to the engine."""
        self.tokens += prompt
        self._silent[priority] += prompt

    def read(self, tokens: int) -> None:
        """A step read prompt tokens, or the prefix cache spared them."""
        self.tokens = max(0, self.tokens - tokens)

    def settled(self, priority: Priority, prompt: int) -> None:
        """A request got its first token, or left without one."""
        self._silent[priority] -= prompt
        self.tokens = min(self.tokens, sum(self._silent.values()))
