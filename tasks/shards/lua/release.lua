-- RELEASE: give one shard up, for another member to take at once; or for good, when its target is over.
-- USES cluster
-- KEYS[1] ns              namespace of the bot
-- ARGV[6] v               the target's version
-- ARGV[7] shard
-- ARGV[8] fence
-- RETURNS 1 | 0           0: it was not the member's
local v, bind = tonumber(ARGV[6]), read_bind(ARGV[6], ARGV[7])
if not bind or bind.holder ~= m or bind.fence ~= tonumber(ARGV[8]) then return 0 end
local active, pending = target(ACTIVE), target(PENDING)
if (active and active.v == v) or (pending and pending.v == v) then write_bind(v, ARGV[7], 'handoff', '', bind.fence)
else
  call('HDEL', binds(v), ARGV[7])
  forget(v)
end
changed('bind')
return 1
