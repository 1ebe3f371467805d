-- IDENTIFY: may this shard identify now? One per bucket and spacing, in order, within the day's budget.
-- USES cluster votes
-- KEYS[1] ns              namespace of the bot
-- ARGV[6] v               the target's version
-- ARGV[7] shard
-- ARGV[8] fence
-- ARGV[9] spacing ms      between two identifies of one bucket
-- ARGV[10] credentials    the member's, by their name
-- RETURNS 0               granted, for now
--       | > 0             ask again after so many ms
--       | -1              not held with this fence
--       | -2              the budget is used up, for this target
--       | -3              the budget is not known
--       | -4              it is stopped: with these credentials, or for this target
local LATE_MS, TURN_MS, AFTER_ACTIVE = 1500, 250, 1000000
local v, shard, bind = tonumber(ARGV[6]), tonumber(ARGV[7]), read_bind(ARGV[6], ARGV[7])
if not bind or bind.holder ~= m or bind.fence ~= tonumber(ARGV[8]) or not living(m) then return -1 end
if stopped(ARGV[10]) or stopped('v' .. v) then return -4 end
local left, active = remaining(), target(ACTIVE)
if not left then return -3 end
local serves = not active or active.v == v
if left <= (serves and LAST or reserve) then return -2 end
local concurrency, spacing_ms = tonumber(call('HGET', BUDGET, 'concurrency')), tonumber(ARGV[9])
local bucket = shard % concurrency
local waits, since = ns .. 'waits:' .. bucket, ns .. 'since:' .. bucket
local name = v .. ' ' .. shard
call('ZADD', waits, shard + (serves and 0 or AFTER_ACTIVE), name)
local free_at = tonumber(call('HGET', BUDGET, 'free:' .. bucket) or 0)
if free_at > now_ms + spacing_ms then -- the clock was set back
  free_at = now_ms + spacing_ms
  call('HSET', BUDGET, 'free:' .. bucket, string.format('%.0f', free_at))
end
-- It asks again when it was told to; who is late for that by more than LATE_MS has gone.
local function wait(ms)
  call('HSET', since, name, string.format('%.0f', now_ms + ms))
  for _, key in ipairs{waits, since} do call('PEXPIRE', key, 10000) end
  return ms
end
if free_at > now_ms then return wait(free_at - now_ms) end
for _, other in ipairs(call('ZRANGE', waits, 0, -1)) do
  if other == name then break end
  if tonumber(call('HGET', since, other) or 0) > now_ms - LATE_MS then return wait(TURN_MS) end
  call('ZREM', waits, other)
  call('HDEL', since, other)
end
call('ZREM', waits, name)
call('HDEL', since, name)
if tonumber(call('HGET', BUDGET, 'reset_at')) <= now_ms then
  call('HSET', BUDGET, 'reset_at', string.format('%.0f', now_ms + 86400000))
end
call('HSET', BUDGET, 'remaining', left - 1, 'free:' .. bucket, string.format('%.0f', now_ms + spacing_ms))
return 0
