-- OVERLAP: what a shard may do now, and what the other target handed on for it. Changes nothing.
-- USES cluster session
-- KEYS[1] ns              namespace of the bot
-- ARGV[6] v               the target's version
-- ARGV[7] shard
-- ARGV[8] fence
-- ARGV[9] after           the last entry that is known, '-' for none
-- ARGV[10] most           entries in one answer
-- RETURNS {standing, now, ready, entries}   ready: when its READY came, 0 unknown; entries: id, guild, identity, ms,
--                         replayed of each; fewer than `most`: these were all, and with SERVES no more will come
local v, shard = tonumber(ARGV[6]), ARGV[7]
local found = standing(v, shard, tonumber(ARGV[8]))
local told = {}
if found == SERVES or found == WAITS then
  local first = ARGV[9] == '-' and '-' or '(' .. ARGV[9]
  for _, entry in ipairs(call('XRANGE', entries(v, shard), first, '+', 'COUNT', ARGV[10])) do
    told[#told + 1] = entry[1]
    for field = 2, 8, 2 do told[#told + 1] = entry[2][field] end
  end
end
return {found, now_ms, tonumber(call('HGET', overlap(v), 'ready:' .. shard) or 0), told}
