-- STOP: Discord closed a shard for good. What was tried with it is tried no more by any pod, until a person says RETRY.
-- USES cluster
-- KEYS[1] ns              namespace of the bot
-- ARGV[6] v               the target's version
-- ARGV[7] shard
-- ARGV[8] fence
-- ARGV[9] scope           what is not tried again: the credentials' name, or "v" and the target's version
-- ARGV[10] code           Discord's close code
-- ARGV[11] why
-- RETURNS 1 | 0           0: it was not the member's, or somebody has claimed it since
local bind, active, pending = read_bind(ARGV[6], ARGV[7]), target(ACTIVE), target(PENDING)
if bind then
  if bind.fence ~= tonumber(ARGV[8]) or (bind.holder ~= m and bind.state ~= 'handoff') then return 0 end
else -- Redis lost its data while the member could not say it: nobody has claimed the shard, and nobody shall
  local v = tonumber(ARGV[6])
  if not (active and active.v == v) and not (pending and pending.v == v) then return 0 end
end
call('HSET', STATE, stop(ARGV[9]), string.format('%s %.0f %s', ARGV[10], now_ms, ARGV[11]))
changed('stop')
return 1
