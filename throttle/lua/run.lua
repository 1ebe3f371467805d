-- RUN: an entry runs for a due time: its record moves on, its messages are published and waiters rung, in one step or not
-- at all. A full Redis refuses it, as PUT.
-- USES rule bells schedule
-- KEYS[1] ns             namespace of the fleet
-- KEYS[2..] queue        queue keys, one for each message
-- ARGV[6] term           of the member
-- ARGV[7] lease ms       by which the lease is renewed
-- ARGV[8] entry          its name
-- ARGV[9] expected us    the due time that its record names
-- ARGV[10] due us        the due time that it runs for, that one or a later one; '' to move on without a run
-- ARGV[11] next us       its next due time
-- ARGV[12..] message     one for each queue; after them channel, message, ... for broadcasts
-- RETURNS {1 | 0 | -1 | -2, server us, record}: done | not due yet | not leading (any more) | the record says otherwise
if not leads(ARGV[6]) then return {-1, digits(now_us), ''} end
local name, due = ARGV[8], ARGV[10]
local record = call('HGET', ENTRIES, name) or ''
local expected, last, ran, runs, digest = record:match('^(%d+) (%d+) (%d+) (%d+) (.*)$')
if expected ~= ARGV[9] then return {-2, digits(now_us), record} end
if due ~= '' then
  if now_us < tonumber(due) then return {0, digits(now_us), record} end
  last, ran, runs = due, digits(now_us), digits(runs + 1)
end
for i = 2, #KEYS do    -- looked at before anything is written: a script that fails half way is not undone
  local kind = call('TYPE', KEYS[i]).ok
  if kind ~= 'none' and kind ~= 'list' then
    return redis.error_reply('WRONGTYPE the queue ' .. KEYS[i] .. ' is a ' .. kind)
  end
end
for i = 2, #KEYS do
  call('LPUSH', KEYS[i], ARGV[10 + i])
  ring_for(KEYS[i])
end
for i = 11 + #KEYS, #ARGV, 2 do call('PUBLISH', ARGV[i], ARGV[i + 1]) end
record = table.concat({ARGV[11], last, ran, runs, digest}, ' ')
call('HSET', ENTRIES, name, record)
call('PEXPIRE', LEASE, ARGV[7])
return {1, digits(now_us), record}
