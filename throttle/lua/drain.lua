-- DRAIN: the member takes nothing more and leaves the count of the living; it keeps what it holds until it is done.
-- A token ends the wait for its bell.
-- USES rule bells messages
-- KEYS[1] ns             namespace of the fleet
-- RETURNS 2 | 0          2: draining; 0: LOST
even_when_full()
local dead_at = call('ZSCORE', ALIVE, m)
if dead_at then
  call('ZREM', ALIVE, m)
  call('ZADD', DRAINING, dead_at, m)
  mark(m)
  strike_off(m)
  log('drain', m)
  arrived(m)
  ring_any()
elseif not call('ZSCORE', DRAINING, m) then
  return 0
end
token(m)
return 2
