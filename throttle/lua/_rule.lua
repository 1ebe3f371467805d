-- The shared rule: who lives, who is busy, and whether a pod may start normal work.
-- Every operation begins with this file, so that all of them read one clock and one truth.
--   KEYS[1] ns              namespace of the fleet, ends in ':'
--   ARGV[1] member          pod#boot, '' for a producer
--   ARGV[2] ttl_ms          a member silent for longer than this is dead
--   ARGV[3] ratio           share of the living pods that may be busy with normal work
--   ARGV[4] max deliveries  a message returned this often goes to the dead letters
--   ARGV[5] journal         entries the log of operations keeps; 0: none is written
local call = redis.call
local ns, m = KEYS[1], ARGV[1]
local ttl_ms, ratio = tonumber(ARGV[2]), tonumber(ARGV[3])
local limit, journal = tonumber(ARGV[4]), tonumber(ARGV[5])
local beat_ms = ttl_ms / 3

local function server_ms()
  local t = call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end
local now_ms = server_ms()

local ALIVE, DRAINING, BUSY = ns .. 'pods:alive', ns .. 'pods:draining', ns .. 'pods:busy'
local NAMES, EPOCH, GUARD = ns .. 'names', ns .. 'epoch', ns .. 'guard'
local KEEP_MS = 1000     -- a slot kept for the TAKE that follows an acknowledgement
local STATS_MS = 604800000 -- the fleet's counters are kept for a week after they last changed
local INDEX_MS = 3600000 -- an index of a fleet that is gone disappears after this

local function held(x) return ns .. 'held:' .. x end

-- Redis refuses the first growing write of a script when its memory is full, and none after it. A beat or an
-- acknowledgement must pass even then: it starts with a write that only frees.
local function even_when_full() call('DEL', ns .. 'none') end

local function log(op, member, ...)
  if journal > 0 then
    local stream = ns .. 'journal'
    call('XADD', stream, 'MAXLEN', '~', journal, '*', 'op', op, 'member', member, 'at', now_ms, ...)
    call('PEXPIRE', stream, INDEX_MS)
  end
end

local function last_beat(x)
  return tonumber(call('ZSCORE', ALIVE, x) or call('ZSCORE', DRAINING, x) or nil)
end

local function living(x)
  local beat = call('ZSCORE', ALIVE, x)
  return beat and tonumber(beat) > now_ms - ttl_ms
end

local function capacity()
  local n = call('ZCOUNT', ALIVE, '(' .. now_ms - ttl_ms, '+inf')
  return math.max(1, math.floor(n * ratio + 1e-9))
end

-- 1 while x occupies a slot: it holds something, or keeps its slot for an announced TAKE.
local function occupies(x)
  local until_ms = call('ZSCORE', BUSY, x)
  return until_ms and tonumber(until_ms) > now_ms and 1 or 0
end

-- Living members that occupy a slot, without one of them when it is named.
local function busy(without)
  local count = call('ZCOUNT', BUSY, '(' .. now_ms, '+inf')
  for _, x in ipairs(call('ZRANGEBYSCORE', ALIVE, '-inf', now_ms - ttl_ms)) do
    count = count - occupies(x)
    if x == without then without = nil end
  end
  if without then count = count - occupies(without) end
  return count
end

-- The only writer of BUSY: it follows what x holds, at once and in the same script.
local function mark(x, keep)
  if not call('ZSCORE', ALIVE, x) then call('ZREM', BUSY, x) return end
  if call('EXISTS', held(x)) == 1 then call('ZADD', BUSY, 'inf', x)
  elseif keep then call('ZADD', BUSY, now_ms + KEEP_MS, x)
  else call('ZREM', BUSY, x) return end
  call('PEXPIRE', BUSY, INDEX_MS)
end
