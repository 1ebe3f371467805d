-- ACK: the work is done and the message is gone for good. The last one a member holds frees its slot, or keeps it for
-- a moment when the member announces that its next TAKE follows at once.
-- USES rule bells messages
-- KEYS[1] ns             namespace of the fleet
-- KEYS[2..] queue        when there are any: queue keys of which one must hold a message for the slot to be kept
-- ARGV[6] take id
-- ARGV[7] keep           1: a TAKE follows at once
-- RETURNS 1 | 0          0: NOT_YOURS, no effect
even_when_full()
if not finish(ARGV[6]) then return 0 end
local work = #KEYS == 1
for i = 2, ARGV[7] == '1' and #KEYS or 1 do work = work or call('EXISTS', KEYS[i]) == 1 end
local keep = ARGV[7] == '1' and work
if slot_freed(keep) then ring_any() end
return 1
