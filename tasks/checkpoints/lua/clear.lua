-- CLEAR: the task has succeeded; under the fence that was given out last, else without effect. Only frees memory.
-- KEYS[1] checkpoint     hash of the task
-- KEYS[2] checkpoints    zset of the ids that have one
-- ARGV[1] id             of the task
-- ARGV[2] fence          of the run
-- RETURNS 1 | 0          0: another run has opened it, or there is none any more
if redis.pcall('HGET', KEYS[1], 'fence') ~= ARGV[2] then return 0 end
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], ARGV[1])
return 1
