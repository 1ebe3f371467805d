-- TAKE: remove the first admitted message from the head of its queue and hold it; or, when there is none, give an
-- idle slot back and register as waiting, in the same instant. Idempotent: the same take id again answers with the
-- same message, so a lost reply makes no phantom.
-- USES rule bells messages
-- KEYS[1] ns             namespace of the fleet
-- KEYS[2..] queue        queue keys in the order of preference, the critical ones first
-- ARGV[6] take id        the next number of the process' counter
-- ARGV[7] critical       how many of the queue keys are critical
-- RETURNS {1, seq, deliveries, source, raw}
--       | {0, denied, watched}    nothing; denied is 1 when normal work was not admitted, watched when there is a
--                                doorkeeper
--       | {-1}           LOST: not a living member
--       | {-2}           STALE: this number was taken before and is done with; nothing was taken
even_when_full()
if not living(m) then return {-1} end
local id, critical = ARGV[6], tonumber(ARGV[7])
local rung = arrived(m)
notice(last_beat(m))
due()
local again = call('HGET', held(m), id)
if again and again ~= '' then
  local seq, n, source, raw = open(again)
  strike_off(m)
  return {1, seq, n, source, raw}
end
if made_before(id) then return {-2} end
local others, cap = busy(m), capacity()
local admitted = others < cap
local want = {}
for i = 2, #KEYS do
  local lane = i - 1 <= critical and 'critical' or 'normal'
  local raw = (admitted or lane == 'critical') and call('RPOP', KEYS[i])
  if raw then
    local seq, n = call('INCR', ns .. 'seq'), deliveries(KEYS[i], raw)
    make(id, entry(seq, n, KEYS[i], raw))
    strike_off(m)
    log('take', m, 'id', id, 'seq', seq, 'lane', lane, 'key', KEYS[i], 'deliveries', n, 'busy', others, 'capacity', cap)
    ring_any()     -- the baton: more work and a slot left
    return {1, seq, n, KEYS[i], raw}
  end
  want[#want + 1] = lane
  want[#want + 1] = KEYS[i]
end
local occupied = occupies(m)
mark(m)
register(m, want)
if rung or occupied > occupies(m) then ring_any() end    -- the slot, or a bell that was no use here, goes on
return {0, admitted and 0 or 1, call('EXISTS', ns .. 'doorkeeper')}
