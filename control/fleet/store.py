"""The fleet's common knowledge in Redis: one hash of entries with expiry, and the leader's lease.

Times are Redis' own; an entry says how long it still lasts, never until when. `born` and `version`
together name a state: a Redis that lost its memory is born anew, whatever its version.
"""

import logging
from dataclasses import dataclass

import msgspec

from surgetank.admission.leases.link import Link, Script

logger = logging.getLogger(__name__)
_MICRO = 1_000_000

_LOOK = Script("""
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local me, lease, state = ARGV[1], ARGV[2], ARGV[3]
redis.call('HSETNX', KEYS[1], '@born', string.format('%.0f', now))
local rows, lapsed = redis.call('HGETALL', KEYS[1]), 0
for i = 1, #rows, 2 do
  local till = string.match(rows[i + 1], '^(%d+)|')
  if till and tonumber(till) > 0 and tonumber(till) <= now then
    lapsed = lapsed + redis.call('HDEL', KEYS[1], rows[i])
  end
end
if lapsed > 0 then redis.call('HINCRBY', KEYS[1], '@version', 1) end
local leader = redis.call('GET', KEYS[2])
if not leader then
  redis.call('HINCRBY', KEYS[1], '@term', 1)
  leader = me
end
if leader == me then redis.call('SET', KEYS[2], me, 'PX', lease) end
local known = redis.call('HMGET', KEYS[1], '@born', '@version', '@term')
local born, version, term = known[1], known[2] or '0', known[3] or '0'
local answer = {born .. '-' .. version, leader, born .. '-' .. term}
if answer[1] == state then return answer end
rows = redis.call('HGETALL', KEYS[1])
for i = 1, #rows, 2 do
  local till, text = string.match(rows[i + 1], '^(%d+)|(.*)$')
  if text then
    local left = tonumber(till)
    if left > 0 then left = left - now end
    answer[#answer + 1] = rows[i]
    answer[#answer + 1] = string.format('%.0f', left)
    answer[#answer + 1] = text
  end
end
return answer
""")

_WRITE = Script("""
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local name, text, lasts, term, only_new = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]
local ends = ARGV[6]
local fence = redis.call('HMGET', KEYS[1], '@born', '@term')
if term ~= '' and term ~= (fence[1] or '') .. '-' .. (fence[2] or '') then return 0 end
if only_new == '1' and redis.call('HEXISTS', KEYS[1], name) == 1 then return 1 end
if ends ~= '' then
  local held = string.match(redis.call('HGET', KEYS[1], name) or '', '^%d+|(.*)$')
  local whole, entry = pcall(cjson.decode, held or '')
  if not whole or type(entry) ~= 'table' or entry.value ~= ends then return 1 end
end
redis.call('HSETNX', KEYS[1], '@born', string.format('%.0f', now))
redis.call('HINCRBY', KEYS[1], '@version', 1)
if text == '' then
  redis.call('HDEL', KEYS[1], name)
else
  local till = 0
  if lasts > 0 then till = now + lasts end
  redis.call('HSET', KEYS[1], name, string.format('%.0f', till) .. '|' .. text)
end
return 1
""")

_RESIGN = Script("""
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1
""")


class Entry(msgspec.Struct, frozen=True):
    """What one sidecar told all: a limit's override, or the policy in force."""

    value: float | str
    who: str
    why: str
    origin: str = ""  # the name of the sidecar that said it
    ends: str = ""  # told only in this value's place; "": in the place of whatever holds


@dataclass(frozen=True, slots=True)
class Seen:
    """One look. `entries` by name, each with the seconds it still lasts (None: until it is
    replaced); None when nothing changed since the state that was named."""

    state: str
    leader: str
    term: str
    entries: dict[str, tuple[Entry, float | None]] | None

    @property
    def born(self) -> str:
        """Which life of Redis this is."""
        return self.state.partition("-")[0]


class Store:
    """Asks and tells Redis; every method raises LinkError when it does not answer in time."""

    def __init__(self, link: Link, prefix: str) -> None:
        self._link = link
        self._fleet = f"{{{prefix}}}:fleet"
        self._leader = f"{{{prefix}}}:leader"

    async def look(self, me: str, *, lease: float, state: str) -> Seen:
        """The state now; the lead is renewed, or taken where it is free, for `lease` seconds."""
        args: list[str | int] = [me, round(lease * 1000), state]
        answer = await self._link.run(_LOOK, [self._fleet, self._leader], args)
        words = [word.decode() for word in answer]
        if words[0] == state:
            return Seen(words[0], words[1], words[2], None)
        entries = {}
        for name, left, text in zip(words[3::3], words[4::3], words[5::3]):
            lasts = int(left) / _MICRO if int(left) else None
            try:
                entries[name] = (msgspec.json.decode(text, type=Entry), lasts)
            except msgspec.DecodeError as error:
                logger.warning("fleet: %s in redis is no entry of ours: %s", name, error)
        return Seen(words[0], words[1], words[2], entries)

    async def write(
        self,
        name: str,
        entry: Entry | None,
        *,
        lasts: float | None = None,
        term: str = "",
        only_new: bool = False,
    ) -> bool:
        """Tell all; None takes it back. False when `term` is given and another leads by now."""
        text = "" if entry is None else msgspec.json.encode(entry).decode()
        micros = 0 if lasts is None else max(1, round(lasts * _MICRO))
        ends = "" if entry is None else entry.ends
        args: list[str | int] = [name, text, micros, term, int(only_new), ends]
        return bool(await self._link.run(_WRITE, [self._fleet], args))

    async def resign(self, me: str) -> None:
        """Let another lead at once."""
        await self._link.run(_RESIGN, [self._leader], [me])

    async def close(self) -> None:
        """Drop the connection."""
        await self._link.close()
