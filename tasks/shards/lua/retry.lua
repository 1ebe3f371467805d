-- RETRY: a person has put right what Discord closed connections for: everybody may try again.
-- USES cluster
-- KEYS[1] ns              namespace of the bot
-- RETURNS number          of what was stopped
local count, all = 0, call('HGETALL', STATE)
for i = 1, #all, 2 do
  if string.sub(all[i], 1, 5) == 'stop:' then count = count + call('HDEL', STATE, all[i]) end
end
if count > 0 then changed('retry') end
return count
