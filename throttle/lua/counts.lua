-- COUNTS: the fleet in numbers, all of one instant.
-- USES rule
-- KEYS[1] ns             namespace of the fleet
-- RETURNS {alive, busy, capacity, draining, silent, waiters, parked, dead letters}
local silent = call('ZCOUNT', ALIVE, '-inf', now_ms)
return {
  call('ZCARD', ALIVE) - silent,
  busy(),
  capacity(),
  call('ZCOUNT', DRAINING, '(' .. now_ms, '+inf'),
  silent + call('ZCOUNT', DRAINING, '-inf', now_ms),
  call('ZCARD', ns .. 'waiting'),
  call('ZCARD', ns .. 'parked'),
  call('XLEN', ns .. 'dead'),
}
