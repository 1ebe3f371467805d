-- CLAIM: take shards of one target that nobody holds, up to the member's cap.
-- USES cluster
-- KEYS[1] ns              namespace of the bot
-- ARGV[6] v               the target's version
-- ARGV[7] cap             shards of this target that the member holds at most
-- ARGV[8] credentials     the member's, by their name
-- ARGV[9...] shards       in the order in which it wants them
-- RETURNS a fence for each shard, 0: it is held, or the cap is reached; {} when nothing may be claimed now
local USELESS = {[4004] = true, [4012] = true}  -- with these not even a RESUME would succeed
local v, cap = tonumber(ARGV[6]), tonumber(ARGV[7])
local active, pending = target(ACTIVE), target(PENDING)
local wanted = (active and active.v == v and active) or (pending and pending.v == v and pending)
if not wanted or guarded() or not living(m) then return {} end
if USELESS[stopped(ARGV[8])] then return {} end
if server ~= '' and server ~= call('HGET', STATE, 'server') then return {} end
local load, all = 0, call('HVALS', binds(v))
for _, raw in ipairs(all) do
  local state, holder = string.match(raw, '^(%a+) (%S*) ')
  if holder == m and state ~= 'orphan' then load = load + 1 end
end
local fences, got = {}, false
for i = 9, #ARGV do
  local bind, fence = read_bind(v, ARGV[i]), 0
  local free = not bind or bind.state == 'handoff' or bind.state == 'orphan'
  if free and load < cap and tonumber(ARGV[i]) < wanted.total then
    fence = call('HINCRBY', STATE, 'fence', 1)
    write_bind(v, ARGV[i], 'initialising', m, fence)
    load, got = load + 1, true
  end
  fences[#fences + 1] = fence
end
if got then changed('bind') end
return fences
