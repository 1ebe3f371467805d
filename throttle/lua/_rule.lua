-- The shared rule: who lives, who is busy, and whether a pod may start normal work.
-- Every operation begins with this file, so that all of them read one clock and one truth.
--   KEYS[1] ns              namespace of the fleet, ends in ':'
--   ARGV[1] member          pod#boot, '' for a producer
--   ARGV[2] ttl_ms          the member is dead when it has been silent for longer than this
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
local BEATS, MADE = ns .. 'beats', ns .. 'made'
local KEEP_MS = 1000     -- a slot kept for the TAKE that follows an acknowledgement
local STATS_MS = 604800000 -- the fleet's counters are kept for a week after they last changed
local JOURNAL_MS = 3600000

local function held(x) return ns .. 'held:' .. x end

-- Redis refuses the first growing write of a script when its memory is full, and none after it. A beat or an
-- acknowledgement must pass even then: it starts with a write that only frees.
local function even_when_full() call('DEL', ns .. 'none') end

-- One of the fleet's counters.
local function count(field, n)
  call('HINCRBY', ns .. 'stats', field, n)
  call('PEXPIRE', ns .. 'stats', STATS_MS)
end

local function log(op, member, ...)
  if journal > 0 then
    local stream = ns .. 'journal'
    call('XADD', stream, 'MAXLEN', '~', journal, '*', 'op', op, 'member', member, 'at', now_ms, ...)
    call('PEXPIRE', stream, JOURNAL_MS)
  end
end

-- The members in ALIVE or DRAINING that are silent. Several parts ask; whoever changes these indexes forgets it.
local silent_in = {}
local function silent_of(index)
  silent_in[index] = silent_in[index] or call('ZRANGEBYSCORE', index, '-inf', now_ms)
  return silent_in[index]
end

-- The score of ALIVE and DRAINING is the moment at which a member counts as dead: its last beat and its own TTL, so that
-- pods with different TTLs (a rolling change of it) judge each other by the other's own.
local function note_beat(index, x)
  silent_in = {}
  call('ZADD', index, now_ms + ttl_ms, x)
  call('HSET', BEATS, x, string.format('%.0f %.0f', now_ms, ttl_ms))
end

-- When x has beaten last and its TTL; nil when it is no member.
local function last_beat(x)
  local noted = call('HGET', BEATS, x)
  if not noted then return nil end
  local beat, ttl = noted:match('^(%d+) (%d+)$')
  return tonumber(beat), tonumber(ttl)
end

local function living(x)
  local dead_at = call('ZSCORE', ALIVE, x)
  return dead_at and tonumber(dead_at) > now_ms
end

local function capacity()
  local n = call('ZCOUNT', ALIVE, '(' .. now_ms, '+inf')
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
  for _, x in ipairs(silent_of(ALIVE)) do
    count = count - occupies(x)
    if x == without then without = nil end
  end
  if without then count = count - occupies(without) end
  return count
end

-- The only writers of BUSY: it follows what x holds, at once and in the same script.
local function mark(x, keep)
  if not call('ZSCORE', ALIVE, x) then call('ZREM', BUSY, x) return end
  if call('EXISTS', held(x)) == 1 then call('ZADD', BUSY, 'inf', x)
  elseif keep then call('ZADD', BUSY, now_ms + KEEP_MS, x)
  else call('ZREM', BUSY, x) end
end

-- Whether a take (or permit) of this number was made before, by this incarnation. A command that was stuck on a
-- connection which was given up may arrive long after the process went on: it must not take anything.
local function made_before(id) return tonumber(call('HGET', MADE, m) or 0) >= tonumber(id) end
local function make(id, e) -- for a living m
  call('HSET', held(m), id, e)
  call('HSET', MADE, m, id)
  call('ZADD', BUSY, 'inf', m)
end
