-- FLIP: the pending target serves from now on, if each shard of it is ready in the hands of a living member.
-- USES cluster
-- KEYS[1] ns              namespace of the bot
-- ARGV[6] v               the pending target's version
-- RETURNS 1 | 0
local pending = target(PENDING)
if not pending or pending.v ~= tonumber(ARGV[6]) or guarded() then return 0 end
for shard = 0, pending.total - 1 do
  local bind = read_bind(pending.v, shard)
  if not bind or bind.state ~= 'ready' or not living(bind.holder) then return 0 end
end
local active = target(ACTIVE)
call('HINCRBY', STATE, 'n', 1)
call('DEL', PENDING)
write_target(ACTIVE, {v = pending.v, total = pending.total, since = now_ms, by = pending.by})
if active then sweep(active.v) end
changed('flip')
return 1
