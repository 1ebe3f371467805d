-- Lines: events of one guild that are worked on one after the other, see `tasks.jobs.in_order`.
--   line:<guild>   list  messages in their order; the head is under way
--   turn:<guild>   hash  owner: id of the task that works on the line; turn: rises with each of its starts;
--                        done: heads that are done in this turn; tries: how often the head was begun
local TURN_MS = 900000  -- who has done nothing for so long works on the line no more

local function line(guild) return ns .. 'line:' .. guild end
local function turn(guild) return ns .. 'turn:' .. guild end

-- Puts a message in its guild's line. True: nobody works on it, and `owner` shall be started.
local function stand_in_line(guild, message, owner)
  call('RPUSH', line(guild), message)
  if call('EXISTS', turn(guild)) == 1 then return false end
  call('HSET', turn(guild), 'owner', owner)
  call('PEXPIRE', turn(guild), TURN_MS)
  return true
end
