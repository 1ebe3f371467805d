-- How a target becomes pending: by a majority, or by a person; if the day's identify budget can pay for it.
-- What a person set stays, until the person leaves it to the votes or Discord itself closes connections (urgent).
local URGENT = 1000000 -- rounds

-- Identifies that Discord still allows today; nil when nobody has asked it yet.
local function remaining()
  local left, reset_at = unpack(call('HMGET', BUDGET, 'remaining', 'reset_at'))
  if not left then return nil end
  if tonumber(reset_at) <= now_ms then return tonumber(call('HGET', BUDGET, 'total')) end
  return tonumber(left)
end

-- Returns 1, or why not: 'pending' (another one is), 'same', 'unknown' (the budget), 'budget'.
local function propose(total, by, why)
  local active = target(ACTIVE)
  if target(PENDING) then return 'pending' end
  if active and active.total == total then return 'same' end
  local left = remaining()
  if not left then return 'unknown' end
  if left < total + (active and reserve or LAST) then
    call('HSET', STATE, 'note', string.format('%d shards refused: %d identifies are left today', total, left))
    return 'budget'
  end
  if number('born') == 0 then call('HSET', STATE, 'born', string.format('%.0f', now_ms)) end
  local v = call('HINCRBY', STATE, 'n', 1)
  write_target(PENDING, {v = v, total = total, since = now_ms, by = by})
  call('HSET', STATE, 'note', why)
  changed('pending')
  return 1
end

-- Counts the votes of the living; returns what `propose` did, or 'none'. `rounds` of one value count, one where there
-- is no target yet.
local function count_votes(rounds)
  if target(PENDING) then return 'none' end
  if guarded() then
    call('HSET', STATE, 'recount', 1)
    return 'none'
  end
  call('HDEL', STATE, 'recount')
  local active, alive = target(ACTIVE), call('ZCOUNT', NODES, '(' .. now_ms, '+inf')
  local votes, wanted = call('HGETALL', ns .. 'vote:' .. number('n')), {}
  local least = not active and 1 or active.by == 'person' and URGENT or rounds
  for i = 1, #votes, 2 do
    local total, told, at = string.match(votes[i + 1], '^(%d+) (%d+) (%d+)$')
    local fresh = tonumber(at) > now_ms - VOTE_MS and tonumber(told) >= least
    if fresh and living(votes[i]) then wanted[total] = (wanted[total] or 0) + 1 end
  end
  local needed = math.max(alive, peak())
  for total, count in pairs(wanted) do
    if count * 2 > needed and not (active and active.total == tonumber(total)) then
      return propose(tonumber(total), 'votes', string.format('%d of %d voted for %s', count, needed, total))
    end
  end
  return 'none'
end
