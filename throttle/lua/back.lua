-- BACK: a held message goes back to its queue or to the dead letters, in one step (reject, lost child, shutdown).
-- USES rule bells messages
-- KEYS[1] ns             namespace of the fleet
-- ARGV[6] take id
-- ARGV[7] where          head | tail | dead
-- ARGV[8] deliveries     how many to add to its count; with any, or as a dead letter, its history gets a line
-- ARGV[9] reason         in a word or two
-- ARGV[10] text          the error, '' for none
-- RETURNS 1 | 0          0: NOT_YOURS, no effect
even_when_full()
local e = call('HGET', held(m), ARGV[6])
if not e then return 0 end
local seq, n, source, raw = open(e)
if seq then
  local failed = ARGV[7] == 'dead' or tonumber(ARGV[8]) > 0
  push(source, raw, n + tonumber(ARGV[8]), ARGV[7], failed and {m, ARGV[9], ARGV[10]})
end
log('back', m, 'id', ARGV[6], 'where', ARGV[7], 'reason', ARGV[9])
local freed = let_go(ARGV[6])
if seq then ring_for(source) end
if freed then ring_any() end
return 1
