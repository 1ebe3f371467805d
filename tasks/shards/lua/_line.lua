-- Lines: events of one guild that are worked on one after the other, see `tasks.jobs.in_order`.
--   line:<guild>   list  messages in their order; the head is under way
--   turn:<guild>   hash  owner: id of the task that works on the line; turn: rises with each of its starts;
--                        done: heads that are done in this turn; tries: how often the head was begun;
--                        held, take: of the message that the task came by, while it works
local TURN_MS = 900000  -- who has done nothing for so long works on the line no more

local function line(guild) return ns .. 'line:' .. guild end
local function turn(guild) return ns .. 'turn:' .. guild end

-- Whether the task that works on a line is over without having said so: its message is held no more. A task that waits
-- in a queue says nothing, and neither does one of another fleet.
local function lost(held, take, fleet)
  return held and held:sub(1, #fleet) == fleet and call('HEXISTS', held, take) == 0
end

-- Puts a message in its guild's line. True: nobody works on it, and `owner` shall be started.
local function stand_in_line(guild, message, owner, fleet)
  local at = turn(guild)
  call('RPUSH', line(guild), message)
  local now = call('HMGET', at, 'owner', 'held', 'take')
  if now[1] and not lost(now[2], now[3], fleet) then return false end
  call('HSET', at, 'owner', owner)
  call('HDEL', at, 'held', 'take')
  call('PEXPIRE', at, TURN_MS)
  return true
end
