-- PARK: a held message waits in Redis until it is due. It holds no slot meanwhile and belongs to no member, so it
-- survives them all; TAKE and BEAT bring it back to the head of its queue. By this clock alone: the member's may differ.
-- USES rule bells messages
-- KEYS[1] ns             namespace of the fleet
-- ARGV[6] take id
-- ARGV[7] due ms         server time
-- RETURNS 1 | 2 | 0      parked | due already, it stays held | NOT_YOURS, no effect
even_when_full()
local e = call('HGET', held(m), ARGV[6])
if not e then return 0 end
if tonumber(ARGV[7]) <= now_ms then return 2 end
if e ~= '' then call('ZADD', PARKED, ARGV[7], e) end
log('back', m, 'id', ARGV[6], 'where', 'park', 'reason', 'due later')
if let_go(ARGV[6]) then ring_any() end
return 1
