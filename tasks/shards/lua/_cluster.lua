-- What all operations on a bot's cluster share: one clock, the members, the targets, the binds, the guard.
--   KEYS[1] ns        namespace of the bot, ends in ':'
--   ARGV[1] member    pod#boot, '' for who only looks
--   ARGV[2] ttl_ms    a member is dead when it has been silent for longer than this
--   ARGV[3] scan_ms   how often members look, for the length of the guard
--   ARGV[4] reserve   identifies of a day that no new target may use
--   ARGV[5] server    run id of the Redis that the member is connected to, '' unknown
local call = redis.call
local ns, m = KEYS[1], ARGV[1]
local ttl_ms, scan_ms, reserve, server = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]

local function server_ms()
  local t = call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end
local now_ms = server_ms()

local STATE, NODES, VERSIONS = ns .. 'state', ns .. 'nodes', ns .. 'versions'
local ACTIVE, PENDING = ns .. 'target:active', ns .. 'target:pending'
local BUDGET = ns .. 'identify'
local VOTE_MS = 120000
local LONGEST_TTL_MS = 60000
local LAST = 5           -- identifies of a day that nothing may use: at none Discord resets the token

local function binds(v) return ns .. 'shard:bind:' .. v end
local function heartbeat(x) return ns .. 'node:hb:' .. x end
local function number(field) return tonumber(call('HGET', STATE, field) or 0) end

local function changed(what)
  call('HINCRBY', STATE, 'rev', 1)
  call('PUBLISH', ns .. 'changed', what)
end

-- A target as {v, total, since, by}: by 'votes', or 'person' until a person leaves it to the votes. nil for none.
local function read_target(text)
  local v, total, since, by = string.match(text, '^(%d+) (%d+) (%d+) (%a+)$')
  if v then return {v = tonumber(v), total = tonumber(total), since = tonumber(since), by = by} end
end
local function target_text(t) return string.format('%d %d %.0f %s', t.v, t.total, t.since, t.by) end
local function target(key) return read_target(call('GET', key) or '') end
local function write_target(key, t)
  call('SET', key, target_text(t))
  call('ZADD', VERSIONS, t.total, t.v)
end

-- Field of what is not tried any more: with certain credentials, or for a target.
local function stop(scope) return 'stop:' .. scope end
-- Discord's close code for it; nil while it may be tried.
local function stopped(scope) return tonumber(string.match(call('HGET', STATE, stop(scope)) or '', '^%d+')) end

local function guarded() return number('guard') > now_ms end
local function arm(why)
  call('HSET', STATE, 'guard', string.format('%.0f', now_ms + ttl_ms + 2 * scan_ms), 'guarded', why)
end

local function living(x)
  local dead_at = call('ZSCORE', NODES, x)
  return dead_at and tonumber(dead_at) > now_ms
end

local function read_bind(v, shard)
  local raw = call('HGET', binds(v), shard)
  if not raw then return nil end
  local state, holder, fence = string.match(raw, '^(%a+) (%S*) (%d+)$')
  return {state = state, holder = holder, fence = tonumber(fence)}
end
local function write_bind(v, shard, state, holder, fence)
  call('HSET', binds(v), shard, string.format('%s %s %.0f', state, holder, fence))
end

-- A target that is neither active nor pending and that nobody holds a shard of any more is forgotten.
local function forget(v)
  local active, pending = target(ACTIVE), target(PENDING)
  if (active and active.v == v) or (pending and pending.v == v) then return end
  if call('EXISTS', binds(v)) == 1 then return end
  call('ZREM', VERSIONS, v)
  call('DEL', ns .. 'session:' .. v, ns .. 'overlap:' .. v)
  call('HDEL', STATE, stop('v' .. v))
end

-- What nobody holds of a target that is over needs nobody to close it.
local function sweep(v)
  local all = call('HGETALL', binds(v))
  for i = 1, #all, 2 do
    local state = string.match(all[i + 1], '^(%a+) ')
    if state == 'orphan' or state == 'handoff' then call('HDEL', binds(v), all[i]) end
  end
  forget(v)
end

-- What x holds becomes `state`; of targets that are neither active nor pending, nothing remains.
local function unbind_all(x, state)
  local active, pending = target(ACTIVE), target(PENDING)
  for _, v in ipairs(call('ZRANGE', VERSIONS, 0, -1)) do
    v = tonumber(v)
    local wanted = (active and active.v == v) or (pending and pending.v == v)
    local all = call('HGETALL', binds(v))
    for i = 1, #all, 2 do
      local held, holder, fence = string.match(all[i + 1], '^(%a+) (%S*) (%d+)$')
      if holder == x and held ~= 'handoff' and held ~= 'orphan' then
        if wanted then write_bind(v, all[i], state, state == 'orphan' and x or '', tonumber(fence))
        else call('HDEL', binds(v), all[i]) end
      end
    end
    forget(v)
  end
end

local function window() return math.floor(now_ms / ttl_ms) end
local function note_peak(count)
  local key = ns .. 'peak:' .. string.format('%.0f', window())
  if count > tonumber(call('GET', key) or 0) then call('SET', key, count, 'PX', 3 * ttl_ms) end
end
-- The most members of the last two TTLs.
local function peak()
  local most = 0
  for back = 0, 2 do
    most = math.max(most, tonumber(call('GET', ns .. 'peak:' .. string.format('%.0f', window() - back)) or 0))
  end
  return most
end
local function lower_peak()
  for back = 0, 2 do
    local key = ns .. 'peak:' .. string.format('%.0f', window() - back)
    if tonumber(call('GET', key) or 0) > 0 then call('DECR', key) end
  end
end
