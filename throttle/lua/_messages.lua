-- Messages: an entry of held:<member>, its way back to a queue, and the return of what the dead held.
-- An entry is 'seq deliveries length source' followed by the raw message, in which nothing is parsed or changed;
-- an empty entry is an acknowledged message (or a permit) whose work still runs.
--   seq               counter of all takes of the fleet: the order in which messages go back
--   deliveries:<sha>  hash of a message that was delivered before; deliveries: set while there is any such key
--                       n         how often
--                       history   what ended each of these deliveries, see `tell`
--                       forgiven  so many of n were before a person requeued it, and do not count towards the limit
--   parked            zset   entry -> due_ms
--   dead              stream dead letters
local PARKED, DEAD, COUNTED = ns .. 'parked', ns .. 'dead', ns .. 'deliveries'
local COUNT_MS = 604800000 -- the deliveries of a message are remembered for a week
local LINES = 20           -- ... and what ended the newest of them
local QUIET = 1.5          -- beats; each member beats every two thirds of one
local DUE_AT_ONCE = 20     -- parked messages brought back by one operation

local function entry(seq, n, source, raw)
  return string.format('%.0f %d %d ', seq, n, #source) .. source .. raw
end

-- seq, deliveries, source, raw; or nil for an empty entry
local function open(e)
  local seq, n, length, rest = e:match('^(%d+) (%d+) (%d+) (.*)$')
  if not seq then return nil end
  length = tonumber(length)
  return tonumber(seq), tonumber(n), rest:sub(1, length), rest:sub(length + 1)
end

local function count_key(source, raw) return COUNTED .. ':' .. redis.sha1hex(source .. raw) end

local function deliveries(source, raw)
  if call('EXISTS', COUNTED) == 0 then return 0 end
  return tonumber(call('HGET', count_key(source, raw), 'n') or 0)
end

-- How many of n deliveries count towards the limit: those since a person requeued it, if anybody did.
local function counting(source, raw, n)
  if n == 0 then return 0 end
  return n - tonumber(call('HGET', count_key(source, raw), 'forgiven') or 0)
end

local function done_with(source, raw, n)
  if n > 0 then call('DEL', count_key(source, raw)) end
end

-- A history with one more line: a JSON list of {ms, member, why, text}, the newest last. line: {member, why, text}
local function tell(history, line)
  local known, lines = pcall(cjson.decode, history or '[]')
  if not known then lines = {} end
  lines[#lines + 1] = {now_ms, line[1], line[2], line[3]}
  while #lines > math.min(limit + 1, LINES) do table.remove(lines, 1) end
  return cjson.encode(lines)
end

local function remember(source, raw, n, history, forgiven)
  local key = count_key(source, raw)
  call('HSET', key, 'n', n)
  if history then call('HSET', key, 'history', history) end
  if forgiven then call('HSET', key, 'forgiven', forgiven) end
  call('PEXPIRE', key, COUNT_MS)
  call('SET', COUNTED, 1, 'PX', COUNT_MS)
end

-- A message goes back to its queue after n deliveries, or to the dead letters when its last one failed and was one too
-- many, or when its queue does not take it any more (another type of key, no right to it). failure: {member, why, text},
-- a line of its history. Whoever calls takes it out of its old place afterwards: a script that fails half way leaves it
-- there.
local function push(source, raw, n, where, failure)
  local history = n > 0 and call('HGET', count_key(source, raw), 'history')
  if failure then history = tell(history, failure) end
  if where ~= 'dead' and not (failure and counting(source, raw, n) >= limit) then
    local pushed = redis.pcall(where == 'tail' and 'LPUSH' or 'RPUSH', source, raw)
    if type(pushed) ~= 'table' then
      if n > 0 then remember(source, raw, n, history) end
      return
    end
    failure = {m, pushed.err, ''}
    history = tell(history, failure)
  end
  done_with(source, raw, n)
  count('dead', 1)
  call('XADD', DEAD, '*', 'source', source, 'raw', raw, 'deliveries', n, 'reason', failure[2], 'member', failure[1],
    'at', now_ms, 'history', history)
end

-- Pop from one key; nothing where it is of another type, which is noted in `odd`: other queues go on.
local MANY, odd = 1000, {} -- keys in one command: Lua's stack holds some thousands
local function pop_one(key)
  local raw = redis.pcall('RPOP', key)
  if type(raw) ~= 'table' then return raw end
  if not raw.err:find('WRONGTYPE', 1, true) then call('RPOP', key) end -- raises
  odd[#odd + 1] = key
end

-- Remove the message at the head of the first queue in KEYS[first..last] that has one: its queue and itself, or nil.
local function pop(first, last)
  for from = first, last, MANY do
    local to, found = math.min(last, from + MANY - 1), nil
    if redis.REDIS_VERSION_NUM then -- 7.0 and newer, and Valkey: one look at all of them
      local command = {'LMPOP', to - from + 1, unpack(KEYS, from, to)}
      command[#command + 1] = 'RIGHT'
      found = redis.pcall(unpack(command))
      if found and not found.err then return found[1], found[2][1] end
    end
    if found ~= false then
      for i = from, to do
        local raw = pop_one(KEYS[i])
        if raw then return KEYS[i], raw end
      end
    end
  end
end

-- The slot of m follows what it holds now, or is kept. True when that freed it.
local function slot_freed(keep)
  local occupied = occupies(m)
  mark(m, keep)
  return occupied > occupies(m)
end

-- The work of a take of m is done, and its message is gone for good; the slot is left to `slot_freed`. False when it is not
-- m's (any more): no effect.
local function finish(id)
  local e = call('HGET', held(m), id)
  if not e then return false end
  local seq, n, source, raw = open(e)
  if seq then done_with(source, raw, n) end
  call('HDEL', held(m), id)
  log('ack', m, 'id', id)
  return true
end

-- A take of m ends: it is out of m's hands. True when that freed its slot.
local function let_go(id)
  call('HDEL', held(m), id)
  return slot_freed()
end

-- RETURN: members end here, with all they hold, in one script. What they held goes to the heads of its queues, the
-- newest take first, so that the order of the takes stands. Returns how many messages went back.
local LOST = {silent = 'it was silent for its TTL', superseded = 'it was started anew under its name'}
local function gone(members, why)
  local back, lost = {}, LOST[why]
  for _, x in ipairs(members) do
    for _, e in ipairs(call('HVALS', held(x))) do
      local seq, n, source, raw = open(e)
      if seq then back[#back + 1] = {seq, lost and n + 1 or n, source, raw, x} end
    end
  end
  table.sort(back, function(a, b) return a[1] > b[1] end)
  for _, r in ipairs(back) do
    log('return', r[5], 'seq', r[1], 'key', r[3])
    push(r[3], r[4], r[2], 'head', lost and {r[5], 'pod lost', lost})
  end
  if lost and #back > 0 then count('returned', #back) end
  silent_in = {}
  for _, x in ipairs(members) do
    call('DEL', held(x))
    strike_off(x)
    arrived(x)
    for _, index in ipairs{ALIVE, DRAINING, BUSY} do call('ZREM', index, x) end
    for _, table_of in ipairs{BEATS, MADE} do call('HDEL', table_of, x) end
    local pod = x:match('^(.*)#')
    if call('HGET', NAMES, pod) == x then call('HDEL', NAMES, pod) end
    log('gone', x, 'why', why)
  end
  for _, r in ipairs(back) do ring_for(r[3]) end
  return #back
end

-- What m holds but does not run (runs: id -> true), under numbers before the one it awaits, comes from a snapshot of
-- before its end: it was acknowledged, and is dropped; or given back (ids between commas), and goes back again. A take
-- of a later number is none of this: a JOIN that was stuck on its way knows nothing of it.
local function forget_ended(runs, awaited, given_back)
  call('HSET', MADE, m, math.max(awaited - 1, tonumber(call('HGET', MADE, m) or 0)))
  for _, id in ipairs(call('HKEYS', held(m))) do
    if not runs[id] and tonumber(id) < awaited then
      local seq, n, source, raw = open(call('HGET', held(m), id))
      local back = seq and given_back:find(',' .. id .. ',', 1, true)
      if back then push(source, raw, n, 'head') end
      call('HDEL', held(m), id)
      log('drop', m, 'id', id)
      if back then ring_for(source) end
    end
  end
end

-- Parked messages that are due go to the heads of their queues.
local function due()
  if call('EXISTS', PARKED) == 0 then return end
  local ready = call('ZRANGEBYSCORE', PARKED, '-inf', now_ms, 'LIMIT', 0, DUE_AT_ONCE)
  for i = #ready, 1, -1 do
    local _, n, source, raw = open(ready[i])
    push(source, raw, n, 'head')
    call('ZREM', PARKED, ready[i])
    ring_for(source)
  end
end

local function silent_members()
  local all = {}
  for _, index in ipairs{ALIVE, DRAINING} do
    for _, x in ipairs(silent_of(index)) do all[#all + 1] = x end
  end
  return all
end

local function arm_guard()
  call('SET', GUARD, now_ms + ttl_ms, 'PX', ttl_ms * 20)
  return now_ms + ttl_ms
end

local function newest_beat()
  local newest = 0
  for _, noted in ipairs(call('HVALS', BEATS)) do newest = math.max(newest, tonumber(noted:match('^%d+'))) end
  return newest
end

-- Until when nothing is returned; nil: no guard. One that has passed is kept while those remain who were silent then:
-- it is not armed for them again. When all who are silent now have beaten since, this silence is another one; and when
-- nobody was heard for a TTL, Redis was away again, and those who were silent have had no chance to be heard.
local function guard_against(silent)
  local guard = tonumber(call('GET', GUARD) or nil)
  if not guard or guard > now_ms then return guard end
  if newest_beat() < now_ms - ttl_ms then return nil end
  for _, x in ipairs(silent) do
    if last_beat(x) <= guard - ttl_ms then return guard end
  end
  return nil
end

-- Nobody has beaten for longer than a living fleet is ever silent: Redis was away, or everything died. It is not
-- believed for one TTL, of those either who fall silent only now: some are back before others.
local function suspect_an_outage()
  local newest = newest_beat()
  if newest > 0 and newest < now_ms - QUIET * beat_ms and not guard_against(silent_members()) then arm_guard() end
end

-- Whoever notices silent members returns what they held, unless their silence looks like Redis' own: the noticer had
-- lost its beat as well, or more than half of four or more have missed their beats by then, those that still have some
-- of their TTL left among them (who vanishes with others counts as dead up to a beat later). Then all wait one TTL, once.
local function notice(my_last_beat_ms)
  local silent = silent_members()
  if #silent == 0 then
    local passed = tonumber(call('GET', GUARD) or nil)
    if passed and passed <= now_ms then call('DEL', GUARD) end
    return 0
  end
  local guard = guard_against(silent)
  local all = call('ZCARD', ALIVE) + call('ZCARD', DRAINING)
  local quiet = call('ZCOUNT', ALIVE, '-inf', now_ms + beat_ms) + call('ZCOUNT', DRAINING, '-inf', now_ms + beat_ms)
  if not guard and ((my_last_beat_ms or last_beat(m)) < now_ms - 2 * beat_ms or (all >= 4 and quiet * 2 > all)) then
    guard = arm_guard()
  end
  if guard and guard > now_ms then return 0 end
  return gone(silent, 'silent')
end
