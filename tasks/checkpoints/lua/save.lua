-- SAVE: how far a run has come; under the fence that was given out last, else without effect.
-- KEYS[1] checkpoint     hash of the task
-- KEYS[2] checkpoints    zset of the ids that have one
-- ARGV[1] id             of the task
-- ARGV[2] fence          of the run
-- ARGV[3] ttl            milliseconds
-- ARGV[4] status         running | stopped | failed
-- ARGV[5] progress       0 to 1
-- ARGV[6] context        content, not looked at
-- RETURNS 1 | 0 | -1     0: another run has opened it; -1: there is none any more
local call, key, index = redis.call, KEYS[1], KEYS[2]
local stored = redis.pcall('HGET', key, 'fence')
if not stored or type(stored) == 'table' then return -1 end
if stored ~= ARGV[2] then return 0 end
local t = call('TIME')
local now_ms = t[1] * 1000 + math.floor(t[2] / 1000)
call('HSET', key, 'status', ARGV[4], 'progress', ARGV[5], 'last_updated', string.format('%.0f', now_ms), 'context', ARGV[6])
call('PEXPIRE', key, ARGV[3])
call('ZADD', index, now_ms + ARGV[3], ARGV[1])
call('PEXPIRE', index, ARGV[3])
return 1
