-- BUDGET: what Discord says of today's identifies. Of two answers about one day the lower one counts.
-- USES cluster
-- KEYS[1] ns              namespace of the bot
-- ARGV[6] total           a day's
-- ARGV[7] remaining
-- ARGV[8] reset_after ms
-- ARGV[9] concurrency     buckets
-- RETURNS remaining       that counts from now on
local SAME_DAY_MS, KEEP_MS = 60000, 172800000
local left, reset_at = tonumber(ARGV[7]), now_ms + tonumber(ARGV[8])
local known, until_ms = unpack(call('HMGET', BUDGET, 'remaining', 'reset_at'))
if known and math.abs(tonumber(until_ms) - reset_at) < SAME_DAY_MS then left = math.min(left, tonumber(known)) end
call('HSET', BUDGET, 'total', ARGV[6], 'remaining', left, 'reset_at', string.format('%.0f', reset_at),
  'concurrency', ARGV[9])
call('PEXPIRE', BUDGET, KEEP_MS)
return left
