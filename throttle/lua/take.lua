-- TAKE: remove the first admitted message from the head of its queue and hold it; or, when there is none, give an
-- idle slot back and register as waiting, in the same instant. Idempotent: the same take id again answers with the
-- same message, so a lost reply makes no phantom. Acknowledgements of earlier takes come along and are done first.
-- USES rule bells messages
-- KEYS[1] ns             namespace of the fleet
-- KEYS[2..] queue        queue keys in the order of preference, the critical ones first
-- ARGV[6] take id        the next number of the process' counter
-- ARGV[7] critical       how many of the queue keys are critical
-- ARGV[8..] acks         numbers of takes whose work is done
-- RETURNS {1, seq, deliveries, source, raw, odd, not_mine}    odd: queue keys that are no list; not_mine: acks of no effect
--       | {0, denied, watched, odd, not_mine}    nothing; denied: no normal work was admitted; watched: by a doorkeeper
--       | {-1, odd, not_mine}    LOST: not a living member
--       | {-2, odd, not_mine}    STALE: this number was taken before and is done with; nothing was taken
even_when_full()
local id, critical, not_mine = ARGV[6], tonumber(ARGV[7]), {}
for i = 8, #ARGV do
  if not finish(ARGV[i]) then not_mine[#not_mine + 1] = ARGV[i] end
end
local function nothing(code)
  if #not_mine < #ARGV - 7 and slot_freed() then ring_any() end
  return {code, odd, not_mine}
end

if not living(m) then return nothing(-1) end
local rung = arrived(m)
notice()
due()
if made_before(id) then
  local again = call('HGET', held(m), id)
  if not again or again == '' then return nothing(-2) end
  local seq, n, source, raw = open(again)
  strike_off(m)
  return {1, seq, counting(source, raw, n), source, raw, odd, not_mine}
end
local others, cap = busy(m), capacity()
local admitted = others < cap
local lane = 'critical'
local source, raw = pop(2, critical + 1)
if not raw and admitted then
  lane, source, raw = 'normal', pop(critical + 2, #KEYS)
end
if raw then
  local seq, n = call('INCR', ns .. 'seq'), deliveries(source, raw)
  make(id, entry(seq, n, source, raw))
  n = counting(source, raw, n)
  strike_off(m)
  log('take', m, 'id', id, 'seq', seq, 'lane', lane, 'key', source, 'deliveries', n, 'busy', others,
    'capacity', cap)
  ring_any()     -- the baton: more work and a slot left
  return {1, seq, n, source, raw, odd, not_mine}
end
local want = {}
for i = 2, #KEYS do
  want[#want + 1] = i - 1 <= critical and 'critical' or 'normal'
  want[#want + 1] = KEYS[i]
end
local free = slot_freed()
register(m, want)
if rung or free then ring_any() end    -- the slot, or a bell that was no use here, goes on
return {0, admitted and 0 or 1, call('EXISTS', ns .. 'doorkeeper'), odd, not_mine}
