-- Sessions of shards, and the log of an overlap.
--   session:<v>          hash    shard -> "sequence fence generation id url"; id '-': Discord has dropped it
--   overlap:<v>          hash    of a pending target. began: when the last READY in it came; ready:<shard>: that shard's;
--                                reached:<shard>: the `began` with which a shard of the active target is done
--   overlap:<v>:<shard>  stream  what the active target handed on, for one shard of the pending one
local SERVES, NOT_HELD, WAITS, OVER, OLDER, UNUSABLE = 1, -1, -2, -3, -4, -5
local OVERLAP_MS = 1800000
local NONE = '-'

local function sessions(v) return ns .. 'session:' .. v end
local function overlap(v) return ns .. 'overlap:' .. v end
local function entries(v, shard) return string.format('%soverlap:%d:%d', ns, v, shard) end

-- What m may do for a shard: SERVES, WAITS (its target is pending), OVER (its target is none), NOT_HELD (nor is it m's).
local function standing(v, shard, fence)
  local bind = read_bind(v, shard)
  local held = bind and (bind.state == 'ready' or bind.state == 'initialising')
  if not held or bind.holder ~= m or bind.fence ~= fence then return NOT_HELD end
  local active, pending = target(ACTIVE), target(PENDING)
  if active and active.v == v then return SERVES end
  if pending and pending.v == v then return active and WAITS or SERVES end
  return OVER
end

local function read_session(v, shard)
  local raw = call('HGET', sessions(v), shard)
  if not raw then return nil end
  local sequence, fence, generation, id, url = string.match(raw, '^(%d+) (%d+) (%d+) (%S+) (%S*)$')
  return {
    sequence = tonumber(sequence), fence = tonumber(fence), generation = tonumber(generation), id = id, url = url,
  }
end
local function write_session(v, shard, s)
  local text = string.format('%.0f %.0f %.0f %s %s', s.sequence, s.fence, s.generation, s.id, s.url)
  call('HSET', sessions(v), shard, text)
end
