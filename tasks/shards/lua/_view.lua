-- The cluster as a member sees it.

local function text(t) return t and target_text(t) or '' end

-- What is stopped, as scope, "code at why" for each.
local function stops()
  local found, all = {}, call('HGETALL', STATE)
  for i = 1, #all, 2 do
    local scope = string.match(all[i], '^stop:(.*)')
    if scope then
      found[#found + 1] = scope
      found[#found + 1] = all[i + 1]
    end
  end
  return found
end

-- {rev, now, epoch, n, fence, guard left ms, born, active, pending, peak, stops}
local function head()
  local guard = math.max(0, number('guard') - now_ms)
  return {
    number('rev'), now_ms, call('HGET', STATE, 'epoch') or '0', number('n'), number('fence'), guard,
    call('HGET', STATE, 'born') or '0',
    text(target(ACTIVE)), text(target(PENDING)), math.max(peak(), call('ZCOUNT', NODES, '(' .. now_ms, '+inf')),
    stops(),
  }
end

-- {members, limits and the rest of their heartbeats, versions with totals, binds of each}
local function all()
  local members = call('ZRANGE', NODES, 0, -1)
  local told, versions, held = {}, call('ZRANGE', VERSIONS, 0, -1, 'WITHSCORES'), {}
  for i, x in ipairs(members) do told[i] = call('GET', heartbeat(x)) or '' end
  for i = 1, #versions, 2 do held[#held + 1] = call('HGETALL', binds(versions[i])) end
  return {members, told, versions, held}
end
