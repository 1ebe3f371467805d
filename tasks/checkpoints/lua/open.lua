-- OPEN: a run of a task begins. It gets a fence above all that were given out before, and what was saved last.
-- KEYS[1] checkpoint     hash of the task
-- KEYS[2] checkpoints    zset of the ids that have one
-- ARGV[1] id             of the task
-- ARGV[2] task           its name
-- ARGV[3] ttl            milliseconds
-- RETURNS {fence}        nothing was there
--       | {fence, status, progress, last_updated, context}
local call, key, index = redis.call, KEYS[1], KEYS[2]
local t = call('TIME')
local now_us = t[1] * 1000000 + t[2]
local stored = redis.pcall('HGET', key, 'fence')
if type(stored) == 'table' then    -- an error: somebody else's value stands here
  call('DEL', key)
  stored = false
end
local fence = string.format('%.0f', math.max((tonumber(stored) or 0) + 1, now_us))
local found = {fence}
if stored then
  for _, field in ipairs({'status', 'progress', 'last_updated', 'context'}) do
    found[#found + 1] = call('HGET', key, field) or ''
  end
else
  call('HSET', key, 'progress', '0', 'last_updated', string.format('%.0f', math.floor(now_us / 1000)), 'context', '')
end
call('HSET', key, 'fence', fence, 'task', ARGV[2], 'status', 'running')
call('PEXPIRE', key, ARGV[3])
call('ZADD', index, math.floor(now_us / 1000) + ARGV[3], ARGV[1])
call('PEXPIRE', index, ARGV[3])
return found
