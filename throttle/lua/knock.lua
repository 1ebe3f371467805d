-- KNOCK: asked by a member whose request was denied and that fetches no normal work until it is let in. Room: its slot is
-- kept for a moment, for the message that it fetches at once. None: an idle slot that it still keeps is given back, and
-- it is registered as waiting, in the same instant.
-- USES rule bells
-- KEYS[1] ns             namespace of the fleet
-- KEYS[2..] queue        queue keys that it waits for; without any it waits for a slot alone: the queues are not here
-- ARGV[6] put back       how many messages it has put back since it last said so, for the fleet's stats
-- RETURNS 1 | 0 | -1     room | none, registered as waiting | LOST
even_when_full()
if tonumber(ARGV[6]) > 0 then count('requeues', ARGV[6]) end
if not living(m) then return -1 end
local rung, work, want = arrived(m), #KEYS == 1, {}
for i = 2, #KEYS do
  want[#want + 1] = 'normal'
  want[#want + 1] = KEYS[i]
  work = work or call('EXISTS', KEYS[i]) == 1
end
local room, occupied = busy(m) < capacity(), occupies(m)
mark(m, room and work)
if room then
  strike_off(m)
  ring_any()     -- the baton: more work and a slot left
  return 1
end
register(m, #want > 0 and want or {'normal', ANYTHING})
if rung or occupied > occupies(m) then ring_any() end    -- the slot, or a bell that was no use here, goes on
return 0
