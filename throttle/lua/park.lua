-- PARK: a held message waits in Redis until it is due. It holds no slot meanwhile and belongs to no member, so it
-- survives them all; TAKE and BEAT bring it back to the head of its queue.
-- USES rule bells messages
-- KEYS[1] ns             namespace of the fleet
-- ARGV[6] take id
-- ARGV[7] due ms         server time
-- RETURNS 1 | 0          0: NOT_YOURS, no effect
even_when_full()
local e = call('HGET', held(m), ARGV[6])
if not e then return 0 end
local occupied = occupies(m)
call('HDEL', held(m), ARGV[6])
mark(m)
log('back', m, 'id', ARGV[6], 'where', 'park', 'reason', 'due later')
if e ~= '' then call('ZADD', PARKED, ARGV[7], e) end
if occupied > occupies(m) then ring_any() end
return 1
