-- Bells: who waits for what, and the ringing of one waiter. Hints only: a lost one costs at most the second
-- until the waiter looks by itself, a surplus one costs a TAKE that finds nothing.
--   waiting                   zset  member -> registered_ms
--   wanted                    hash  member -> packed list of its lists below, to strike it off all of them
--   waiting:<lane>:<queue>    zset  member -> registered_ms
--   waited:<lane>             zset  queue key -> last registration: the lists that are not empty, roughly
--   rung                      hash  member -> queue key it was rung for
--   coming:<queue>            zset  member -> rung_ms: bells under way for that queue
local WAITING, WANTED, RUNG = ns .. 'waiting', ns .. 'wanted', ns .. 'rung'
local LANES = {'critical', 'normal'}
local FRESH_MS = 1500   -- a waiter looks every second; an older entry is a dead pod's
local COMING_MS = 250   -- a rung pod that has not come by then does not count as coming
local SCAN = 32         -- waiters looked at for one bell
local BELL_MS, WAIT_MS = 5000, 60000
local ANYTHING = ''     -- stands for a queue that is not in this Redis: who waits for it is rung for any free slot

-- Messages in a queue; none where its key is of another type, or not ours to read: no reason to refuse a beat.
local function queued(key)
  local found = redis.pcall('LLEN', key)
  return type(found) == 'number' and found or 0
end

local function waiters(lane, key) return ns .. 'waiting:' .. lane .. ':' .. key end
local function coming(key) return ns .. 'coming:' .. key end
local function bell(x) return ns .. 'bell:' .. x end

local function strike_off(x)
  local packed = call('HGET', WANTED, x)
  if not packed then return end
  local want = cmsgpack.unpack(packed)
  for i = 1, #want, 2 do call('ZREM', waiters(want[i], want[i + 1]), x) end
  call('HDEL', WANTED, x)
  call('ZREM', WAITING, x)
end

-- want: {lane, key, lane, key, ...}. The same wish again only moves the times.
local function register(x, want)
  local packed = cmsgpack.pack(want)
  if call('HGET', WANTED, x) ~= packed then
    strike_off(x)
    call('HSET', WANTED, x, packed)
  end
  call('ZADD', WAITING, now_ms, x)
  for i = 1, #want, 2 do
    local list, index = waiters(want[i], want[i + 1]), ns .. 'waited:' .. want[i]
    call('ZADD', list, now_ms, x)
    call('PEXPIRE', list, WAIT_MS)
    call('ZADD', index, now_ms, want[i + 1])
    call('PEXPIRE', index, WAIT_MS)
  end
  call('PEXPIRE', WANTED, WAIT_MS)
  call('PEXPIRE', WAITING, WAIT_MS)
end

local function token(x)
  call('LPUSH', bell(x), string.format('%.0f', now_ms))    -- when it was rung, for whoever measures
  call('PEXPIRE', bell(x), BELL_MS)
end

-- The bell of x was answered (or x is leaving): it is no longer on its way. True when it had been rung.
local function arrived(x)
  call('DEL', bell(x))
  local key = call('HGET', RUNG, x)
  if not key then return false end
  call('HDEL', RUNG, x)
  call('ZREM', coming(key), x)
  return true
end

-- Ring the newest waiter for a queue whose TAKE would be admitted now, an idle one before a busy one. The newest is
-- the least likely to be dead. 1 when somebody was rung.
local function ring_lane(lane, key, taken, cap)
  local room = lane == 'critical' and 2 or cap - taken + 1    -- 2 and more: anybody; 1: only who is busy already
  if room < 1 then return 0 end
  local chosen
  for _, x in ipairs(call('ZREVRANGEBYSCORE', waiters(lane, key), '+inf', now_ms - FRESH_MS, 'LIMIT', 0, SCAN)) do
    local idle = occupies(x) == 0
    if idle and room >= 2 then chosen = x break end
    if not idle and not chosen then chosen = x end
  end
  if not chosen then return 0 end
  strike_off(chosen)
  call('HSET', RUNG, chosen, key)
  call('PEXPIRE', RUNG, WAIT_MS)
  call('ZADD', coming(key), now_ms, chosen)
  call('PEXPIRE', coming(key), BELL_MS)
  token(chosen)
  return 1
end

-- One message came to a queue: ring one waiter that it concerns.
local function ring_for(key)
  if call('EXISTS', WAITING) == 0 then return 0 end
  local taken, cap = busy(), capacity()
  for _, lane in ipairs(LANES) do
    if ring_lane(lane, key, taken, cap) == 1 then return 1 end
  end
  return 0
end

-- A slot or a bell is left over: ring one waiter that has work for it, beyond what those on their way will take.
local function ring_any()
  if call('EXISTS', WAITING) == 0 then return 0 end
  local taken, cap = busy(), capacity()
  for _, lane in ipairs(LANES) do
    if lane == 'critical' or taken <= cap then
      for _, key in ipairs(call('ZREVRANGEBYSCORE', ns .. 'waited:' .. lane, '+inf', now_ms - FRESH_MS)) do
        local waiting = key == ANYTHING and SCAN or queued(key)
        if waiting > 0 and waiting > call('ZCOUNT', coming(key), now_ms - COMING_MS, '+inf')
          and ring_lane(lane, key, taken, cap) == 1 then return 1 end
      end
    end
  end
  return 0
end
