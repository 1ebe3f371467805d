-- LEAVE: the member is gone. What it still held returns to the heads of its queues, uncounted: it was not its fault.
-- USES rule bells messages
-- KEYS[1] ns             namespace of the fleet
-- RETURNS messages returned
even_when_full()
if not last_beat(m) then return 0 end
local returned = gone({m}, 'leave')
ring_any()
return returned
