-- BEAT: the member lives. It also returns what silent members held, brings parked messages that are due, and rings
-- for room that nobody announced. It never touches what the member itself holds.
-- USES rule bells messages
-- KEYS[1] ns             namespace of the fleet
-- RETURNS {1, messages returned, server time in ms}   living
--       | {2, messages returned, server time in ms}   draining
--       | {0, 0, server time in ms}                   LOST: not a member; take nothing, join again
even_when_full()
local before = last_beat(m)
if not before then return {0, 0, now_ms} end
if before < now_ms - QUIET * beat_ms then suspect_an_outage() end
local draining = not call('ZSCORE', ALIVE, m)
note_beat(draining and DRAINING or ALIVE, m)
log('beat', m)
if call('EXISTS', held(m)) == 1 then mark(m) end    -- the index follows what is held, whatever befell the index
local returned = notice(before)
due()
for _, x in ipairs(call('ZRANGEBYSCORE', WAITING, '-inf', now_ms - WAIT_MS, 'LIMIT', 0, 50)) do strike_off(x) end
for _ = 1, math.max(1, math.min(capacity() - busy(), 16)) do
  if ring_any() == 0 then break end
end
return {draining and 2 or 1, returned, now_ms}
