-- Lines: events of one guild that are worked on one after the other, see `tasks.jobs.in_order`.
--   line:<guild>   list  messages in their order; the head is under way
--   turn:<guild>   hash  owner: id of the task that works on the line; turn: rises with each of its starts;
--                        done: heads that are done in this turn; tries: how often the head was begun;
--                        held, take: of the message that the task came by, while it works;
--                        since: ms, when it was put in its queue, while it waits there
local TURN_MS = 900000   -- who has done nothing for so long works on the line no more
local QUEUED_MS = 60000  -- who waits for so long, and whose queue is empty, is not there

local function line(guild) return ns .. 'line:' .. guild end
local function turn(guild) return ns .. 'turn:' .. guild end

local function in_its_queue(at) call('HSET', at, 'since', string.format('%.0f', now_ms)) end
local function at_work(at, held, take)
  call('HDEL', at, 'since', 'held', 'take')
  if held ~= '' then call('HSET', at, 'held', held, 'take', take) end
end

-- Whether the task that has a line is over without having said so: its message is held no more, or is not in its queue.
-- Nothing is known of one that works at the other gate or in another fleet.
local function lost(at, queue, fleet)
  local held, take, since = unpack(call('HMGET', at, 'held', 'take', 'since'))
  if since then return now_ms - since > QUEUED_MS and call('LLEN', queue) == 0 end
  return held and held:sub(1, #fleet) == fleet and call('HEXISTS', held, take) == 0
end

-- Puts a message in its guild's line. True: nobody works on it, and `owner` shall be started, by this queue.
local function stand_in_line(guild, message, owner, queue, fleet)
  local at = turn(guild)
  call('RPUSH', line(guild), message)
  if call('EXISTS', at) == 1 and not lost(at, queue, fleet) then return false end
  call('HSET', at, 'owner', owner)
  in_its_queue(at)
  call('PEXPIRE', at, TURN_MS)
  return true
end
