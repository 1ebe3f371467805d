-- FLIP: the pending target serves from now on, if each shard of it is ready in the hands of a living member and has its
-- session, and if nothing is lost by it: each shard of the active target that has a session is served, and has handed on
-- all that it heard until well after the last READY of the pending one. Who cannot say so is waited for, for a while.
-- USES cluster session
-- KEYS[1] ns              namespace of the bot
-- ARGV[6] v               the pending target's version
-- ARGV[7] patience        ms after the last READY (or the wish) until which the active target is waited for
-- RETURNS 1 | 0
local pending = target(PENDING)
if not pending or pending.v ~= tonumber(ARGV[6]) or guarded() then return 0 end
for shard = 0, pending.total - 1 do
  local bind = read_bind(pending.v, shard)
  if not bind or bind.state ~= 'ready' or not living(bind.holder) then return 0 end
end
local active = target(ACTIVE)
local began = call('HGET', overlap(pending.v), 'began')
for shard = 0, began and pending.total - 1 or -1 do
  local saved = read_session(pending.v, shard)
  if not saved or saved.id == NONE then return 0 end -- Discord has dropped it, and nobody has told yet
end
local waited = now_ms - (tonumber(began) or pending.since) >= tonumber(ARGV[7])
if active and not waited then
  for shard = 0, active.total - 1 do
    local saved, bind = read_session(active.v, shard), read_bind(active.v, shard)
    if saved and saved.id ~= NONE then
      if not bind or bind.state ~= 'ready' or not living(bind.holder) then return 0 end
      if not began or call('HGET', overlap(pending.v), 'reached:' .. shard) ~= began then return 0 end
    end
  end
end
call('HINCRBY', STATE, 'n', 1)
call('DEL', PENDING)
write_target(ACTIVE, {v = pending.v, total = pending.total, since = now_ms, by = pending.by})
if active then sweep(active.v) end
changed('flip')
return 1
