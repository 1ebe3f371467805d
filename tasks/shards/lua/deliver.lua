-- DELIVER: hand on what a shard heard, each event once, and save how far its session is. The one operation of shards
-- whose keys lie apart (a bot's cluster, queues, a fleet's bells): it cannot be used on a Redis Cluster.
-- USES cluster session line ring
-- KEYS[1] ns              namespace of the bot
-- KEYS[2] fleet           namespace of the fleet that works on the queues
-- KEYS[3...] queues       where messages go
-- ARGV[6] v               the target's version
-- ARGV[7] shard
-- ARGV[8] fence
-- ARGV[9] generation      of the holder's sessions under this fence, from 1
-- ARGV[10] session        its id
-- ARGV[11] url            where it is resumed
-- ARGV[12] base           the sequence up to which its events are handed on, as far as the holder knows
-- ARGV[13] ended          1: Discord has dropped it; what comes here is its last
-- ARGV[14] ready          ms since its READY, told once; -1: not told; -2: with this call all entries are gone that were
--                         before it, and whoever resumes is to hear all that are left
-- ARGV[15] reached        the `began` of the overlap with which the shard is done, '' none
-- ARGV[16] ratio          of the fleet, for its bells
-- ARGV[17] gone           so many entries of the overlap's log come next that no event repeats
-- ARGV[18...] gone, then ten for each event:
--   sequence, deed (push: to a queue; line: to its guild's line; note: it was handed on otherwise; skip: it repeats an
--   entry; pass: nobody wants it), where (push: which queue, from 1; skip: the entry; line: queue and task that starts
--   the line), guild, guild >> 22, identity, ms since it was heard, replayed (1, 0), message, message that starts the line
-- RETURNS {code, sequence, began, now, forgotten}   sequence: the saved one; began: of the pending target's last READY, '';
--         forgotten: so many sequences were handed on that this Redis knows nothing of, -1: it knows nothing at all
--         code SERVES; WAITS: the target is pending, and nothing was done from the first that is no skip or pass
--       | {code}          NOT_HELD | OVER | OLDER: the holder has a newer session
--       | {UNUSABLE, key} the key of a queue is no list; nothing was done
local EVENT, LOG = 10, 20000
local v, shard, fence, generation = tonumber(ARGV[6]), ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9])
local found = standing(v, shard, fence)
if found == NOT_HELD or found == OVER then return {found} end
local saved, ended = read_session(v, shard), ARGV[13] == '1'
if saved and (saved.fence > fence or (saved.fence == fence and
    (saved.generation > generation or (saved.generation == generation and saved.id == NONE)))) then return {OLDER} end

local base = tonumber(ARGV[12])
local same = saved and saved.id == ARGV[10]
local forgotten = same and math.max(0, base - saved.sequence) or (base > 1 and -1 or 0) -- READY is 1
local s = {sequence = base, fence = fence, generation = generation, id = ARGV[10], url = ARGV[11]}
if same then s.sequence = math.max(saved.sequence, base) end
local active, pending = target(ACTIVE), target(PENDING)
local other = found == SERVES and pending and pending.v ~= v and pending
local began = other and call('HGET', overlap(other.v), 'began') or ''

local first = 18 + tonumber(ARGV[17])
for i = 3, #KEYS do
  local kind = call('TYPE', KEYS[i]).ok
  if kind ~= 'none' and kind ~= 'list' then return {UNUSABLE, KEYS[i]} end
end

-- The first write is one that a full Redis refuses: then nothing of this was done.
write_session(v, shard, s)
if found == SERVES and saved and saved.id ~= s.id then call('DEL', entries(v, shard)) end -- it was another session's
if ended then s.id, s.url = NONE, '' end
for i = 18, first - 1 do call('XDEL', entries(v, shard), ARGV[i]) end
local rung, logs = {}, {}
local function push(number, message)
  local key = KEYS[2 + number]
  call('LPUSH', key, message)
  rung[key] = (rung[key] or 0) + 1
end
for i = first, #ARGV, EVENT do
  local sequence, deed, where, guild = tonumber(ARGV[i]), ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  if found == WAITS and deed ~= 'skip' and deed ~= 'pass' then break end
  if sequence > s.sequence then
    if deed == 'push' then push(tonumber(where), ARGV[i + 8])
    elseif deed == 'line' then
      local queue, owner = where:match('^(%d+) (%S+)$')
      queue = tonumber(queue)
      if stand_in_line(guild, ARGV[i + 8], owner, KEYS[2 + queue], KEYS[2]) then push(queue, ARGV[i + 9]) end
    elseif deed == 'skip' then call('XDEL', entries(v, shard), where) end
    if other and deed ~= 'pass' then
      local log = entries(other.v, tonumber(ARGV[i + 4]) % other.total)
      local at_ms = string.format('%.0f', now_ms - tonumber(ARGV[i + 6]))
      call('XADD', log, 'MAXLEN', '~', LOG, '*', 'g', guild, 'i', ARGV[i + 5], 't', at_ms, 'r', ARGV[i + 7])
      logs[log] = true
    end
    s.sequence = sequence
  end
end
write_session(v, shard, s)
for log in pairs(logs) do call('PEXPIRE', log, OVERLAP_MS) end
if found == WAITS and tonumber(ARGV[14]) >= 0 then
  local ready = string.format('%.0f', now_ms - tonumber(ARGV[14]))
  call('HSET', overlap(v), 'began', string.format('%.0f', now_ms), 'ready:' .. shard, ready)
  call('PEXPIRE', overlap(v), OVERLAP_MS)
elseif found == SERVES and ARGV[14] == '-2' then
  call('HSET', overlap(v), 'ready:' .. shard, 1)
  call('PEXPIRE', overlap(v), OVERLAP_MS)
elseif other and ARGV[15] ~= '' then
  call('HSET', overlap(other.v), 'reached:' .. shard, ARGV[15])
  call('PEXPIRE', overlap(other.v), OVERLAP_MS)
end
local ring_for = bells({KEYS[2]}, {'', 30000, ARGV[16], 1, 0})
for key, count in pairs(rung) do
  while count > 0 and ring_for(key) == 1 do count = count - 1 end
end
return {found, s.sequence, began, now_ms, forgotten}
