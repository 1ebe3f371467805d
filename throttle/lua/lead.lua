-- LEAD: lead the schedule for a lease, go on leading it, or stand by. Who begins a term gets the records with it.
-- USES rule schedule
-- KEYS[1] ns             namespace of the fleet
-- ARGV[6] term           the term that the member believes itself in, '' for none
-- ARGV[7] lease ms       how long it leads without asking again
-- ARGV[8] yields         1: it does not begin to lead where the records are gone, for the sake of one who remembers them
-- RETURNS {standing, term that leads, server us, what is left of it in ms, name, record, ...}; standing is
--   2 | 1 | 0 | -1       a term begins, the records follow | it goes on | another leads | nobody does, the records are gone
even_when_full()
call('ZADD', BEATS_SEEN, now_ms, m)
call('ZREMRANGEBYSCORE', BEATS_SEEN, '-inf', now_ms - SEEN_MS)
call('PEXPIRE', BEATS_SEEN, SEEN_MS)
local holder = call('GET', LEASE)
if holder and holder == ARGV[6] then
  call('PEXPIRE', LEASE, ARGV[7])
  return {1, holder, digits(now_us), tonumber(ARGV[7])}
end
local mine = holder and holder:sub(1, #m + 1) == m .. ' '    -- it began, and the answer was lost
if holder and not mine then return {0, holder, digits(now_us), call('PTTL', LEASE)} end
if not holder and ARGV[8] == '1' and call('EXISTS', ENTRIES) == 0 then return {-1, '', digits(now_us), 0} end
local term = mine and holder or m .. ' ' .. digits(now_us)
call('SET', LEASE, term, 'PX', ARGV[7])
local answer = {2, term, digits(now_us), tonumber(ARGV[7])}
for _, part in ipairs(call('HGETALL', ENTRIES)) do answer[#answer + 1] = part end
return answer
