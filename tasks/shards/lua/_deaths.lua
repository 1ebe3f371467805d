-- Who is dead, and the guard against believing too much of it at once.

-- Gives up members that have been silent for a TTL. Returns how many; none while the guard holds.
local function notice(was_silent)
  local dead = call('ZRANGEBYSCORE', NODES, '-inf', now_ms)
  if #dead == 0 then call('HDEL', STATE, 'suspected') return 0 end
  if guarded() then return 0 end
  local many = #dead * 2 > call('ZCARD', NODES) or was_silent
  if many and number('suspected') == 0 then
    call('HSET', STATE, 'suspected', 1)
    arm('many are silent')
    return 0
  end
  for _, x in ipairs(dead) do
    call('ZREM', NODES, x)
    unbind_all(x, 'orphan')
  end
  call('HDEL', STATE, 'suspected')
  changed('dead')
  return #dead
end

-- An older incarnation of the same pod, silent for a third of a TTL, is dead: its container was restarted.
local function supersede()
  local pod = string.match(m, '^(.*)#')
  for _, x in ipairs(call('ZRANGEBYSCORE', NODES, '-inf', now_ms + ttl_ms * 2 / 3)) do
    if x ~= m and string.match(x, '^(.*)#') == pod then
      call('ZREM', NODES, x)
      unbind_all(x, 'orphan')
      changed('dead')
    end
  end
end
