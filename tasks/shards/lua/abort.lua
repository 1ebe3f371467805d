-- ABORT: the pending target is given up, its version stays burnt; the active one goes on.
-- USES cluster
-- KEYS[1] ns              namespace of the bot
-- ARGV[6] v               the pending target's version, 0: whichever it is
-- ARGV[7] why
-- RETURNS 1 | 0
local pending = target(PENDING)
if not pending or (tonumber(ARGV[6]) ~= 0 and pending.v ~= tonumber(ARGV[6])) then return 0 end
call('HINCRBY', STATE, 'n', 1)
call('DEL', PENDING)
call('HSET', STATE, 'note', string.format('%d shards given up: %s', pending.total, ARGV[7]))
sweep(pending.v)
changed('abort')
return 1
