-- EMPTY: acknowledged before its work is done (acks_late off). The message is gone for good, its entry stays without
-- a body, and with it the slot, until ACK.
-- USES rule bells messages
-- KEYS[1] ns             namespace of the fleet
-- ARGV[6] take id
-- RETURNS 1 | 0          0: NOT_YOURS, no effect
even_when_full()
local e = call('HGET', held(m), ARGV[6])
if not e then return 0 end
local seq, n, source, raw = open(e)
if seq then done_with(source, raw, n) end
call('HSET', held(m), ARGV[6], '')
log('empty', m, 'id', ARGV[6])
return 1
