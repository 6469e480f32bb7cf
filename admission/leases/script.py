"""The one script that shares out the limits: a claim is set, never added, so asking twice is safe.

KEYS: the sidecars, then one hash a limit. ARGV: who asks, the number of its question, how many
sidecars it knew, hold and forget in microseconds, then per limit: total without what is earned,
want, held, earned, spare, in millionths. Answers {sidecars, share, total, share, total, ...}, or
nothing to a question that is older than one already answered (a command that was stuck).

Everything is a whole number, and all times are Redis' own: no client's clock matters. For each
limit a sidecar's row says until its next question

    bound = max(held, share)         what it may go on using, should the answer be lost

and the sum of the bounds is at most the total: share = min(want, total - sum of the others' claims)
with an other's claim = max(bound, min(want, fair)), fair = total / those who want some. One that is
silent keeps its bound while it may hold its last share, and is then counted with total / sidecars
until it is forgotten. After Redis lost its memory, the sidecars that have not come back yet are
counted likewise.
"""

RENEW = """
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local me, id, known = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local hold, forget = tonumber(ARGV[4]), tonumber(ARGV[5])
local function whole(x) return string.format('%.0f', math.floor(x)) end

local silent, met, born = {}, 1, now
local rows = redis.call('HGETALL', KEYS[1])
for i = 1, #rows, 2 do
  local name, value = rows[i], rows[i + 1]
  if name == '@born' then
    born = tonumber(value)
  else
    local seen, last = string.match(value, '(%d+):(%d+)')
    if name == me then
      if id <= tonumber(last) then return {} end
    elseif now - seen > forget then
      redis.call('HDEL', KEYS[1], name)
    else
      silent[name] = now - seen
      met = met + 1
    end
  end
end
local n = met
if now - born < hold then n = math.max(met, known) end
redis.call('HSET', KEYS[1], '@born', whole(born), me, whole(now) .. ':' .. whole(id))
redis.call('PEXPIRE', KEYS[1], whole(forget / 500))

local answer = {n}
for k = 2, #KEYS do
  local a = 5 * (k - 1)
  local total, want, held = ARGV[a + 1] + ARGV[a + 4], tonumber(ARGV[a + 2]), tonumber(ARGV[a + 3])
  local earned, spare = tonumber(ARGV[a + 4]), tonumber(ARGV[a + 5])
  local others, wanting = {}, 1
  rows = redis.call('HGETALL', KEYS[k])
  for i = 1, #rows, 2 do
    local name = rows[i]
    if name ~= me then
      local seen, w, b, e = string.match(rows[i + 1], '(%d+):(%d+):(%d+):(%d+)')
      if silent[name] == nil or now - seen > hold then
        redis.call('HDEL', KEYS[k], name)
      else
        others[name] = {want = tonumber(w), bound = tonumber(b)}
        total = total + e
        if others[name].want > 0 then wanting = wanting + 1 end
      end
    end
  end
  if total < n * spare then spare = 0 end
  local free, fair = total, total / wanting
  for name, silence in pairs(silent) do
    local other = others[name]
    if silence > hold then
      free = free - total / n
    elseif other then
      free = free - math.max(other.bound, math.min(other.want, fair))
    else
      free = free - spare
    end
  end
  if n > met then free = math.max(held, free - (n - met) * total / n) end
  local share = math.floor(math.max(0, math.min(want, free)))
  if want + held + earned == 0 then
    redis.call('HDEL', KEYS[k], me)
  else
    local bound = math.max(held, share)
    local row = {whole(now), whole(want), whole(bound), whole(earned)}
    redis.call('HSET', KEYS[k], me, table.concat(row, ':'))
    redis.call('PEXPIRE', KEYS[k], whole(forget / 500))
  end
  answer[#answer + 1] = share
  answer[#answer + 1] = math.floor(total)
end
return answer
"""

LEAVE = """
for k = 1, #KEYS do redis.call('HDEL', KEYS[k], ARGV[1]) end
return 1
"""
