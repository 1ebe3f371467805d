-- ACK: the work is done and the message is gone for good. The last one a member holds frees its slot, or keeps it for
-- a moment when the member announces that its next TAKE follows at once.
-- USES rule bells messages
-- KEYS[1] ns             namespace of the fleet
-- KEYS[2..] queue        when there are any: queue keys of which one must hold a message for the slot to be kept
-- ARGV[6] take id
-- ARGV[7] keep           1: a TAKE follows at once
-- RETURNS 1 | 0          0: NOT_YOURS, no effect
even_when_full()
local e = call('HGET', held(m), ARGV[6])
if not e then return 0 end
local seq, n, source, raw = open(e)
if seq then done_with(source, raw, n) end
local keep = ARGV[7] == '1' and (#KEYS == 1 or call('EXISTS', unpack(KEYS, 2)) > 0)
log('ack', m, 'id', ARGV[6])
if let_go(ARGV[6], keep) then ring_any() end
return 1
