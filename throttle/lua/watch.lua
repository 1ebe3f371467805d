-- WATCH: the doorkeeper's look. It renews (or wins) the lease of the one member that watches the queues for producers
-- that ring no bell, reads the length of each queue that somebody waits for, and rings one waiter for each message
-- that nobody is coming for.
-- USES rule bells
-- KEYS[1] ns             namespace of the fleet
-- ARGV[6] lease ms
-- RETURNS {bells rung, full, queue keys read...} | {-1}    full: 1 while no more normal work is admitted
--                                                          -1: another member watches
even_when_full()
local KEEPER = ns .. 'doorkeeper'
local keeper = call('GET', KEEPER)
if keeper and keeper ~= m then return {-1} end
call('SET', KEEPER, m, 'PX', ARGV[6])
local taken, cap = busy(), capacity()
local answer = {0, taken >= cap and 1 or 0}
for _, lane in ipairs(LANES) do
  for _, key in ipairs(call('ZREVRANGEBYSCORE', ns .. 'waited:' .. lane, '+inf', now_ms - WAIT_MS)) do
    answer[#answer + 1] = key
    local lonely = queued(key) - call('ZCOUNT', coming(key), now_ms - COMING_MS, '+inf')
    while lonely > 0 and ring_lane(lane, key, taken, cap) == 1 do
      lonely, answer[1] = lonely - 1, answer[1] + 1
      if lane == 'normal' then taken = taken + 1 end   -- who is rung will be busy: no more than there are slots
    end
  end
end
return answer
