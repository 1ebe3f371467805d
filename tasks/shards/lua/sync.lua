-- SYNC: beat, scan and look in one. The member lives, tells what it holds and remembers, and learns what is new.
-- USES cluster votes deaths view
-- KEYS[1] ns              namespace of the bot
-- ARGV[6] epoch           the newest that the member has seen, 0 none
-- ARGV[7] n               the newest number of a change of the target under it
-- ARGV[8] active          the target as it stood then: "v total since by", '' none
-- ARGV[9] pending         likewise
-- ARGV[10] fence          the highest that it has seen
-- ARGV[11] peak           the most members that it has seen within two TTLs
-- ARGV[12] limit          shards that it holds at most
-- ARGV[13] draining       1: it takes no more
-- ARGV[14] rounds         votes of one value that count
-- ARGV[15] seen           the rev of its last view, -1: none
-- ARGV[16] born           when the numbering of targets began that the member has seen (server ms), 0 none
-- ARGV[17...] v, shard, fence, state   of each bind that it holds (state: initialising, ready)
-- RETURNS {head, lost, view, proposed}   lost: v, shard of each bind that is not the member's; view: {} when rev is what
--   it has seen; proposed: total that a count of votes made pending, 0 for none
local epoch, n, fence, born = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[10]), tonumber(ARGV[16])

local function remember(key, text)
  local t = read_target(text)
  if t then write_target(key, t) else call('DEL', key) end
end

-- Redis may know less than we do: it lost its data, or came back from an older snapshot.
local known = tonumber(call('HGET', STATE, 'epoch') or 0)
if known == 0 then
  call('HSET', STATE, 'epoch', string.format('%.0f', math.max(now_ms, epoch + 1)), 'server', server)
  arm('no data')
elseif server ~= '' and server ~= call('HGET', STATE, 'server') then
  call('HSET', STATE, 'server', server)
  arm('another server')
end
-- Who was away since before a loss of data may know a numbering that nobody else does, with versions that mean other
-- targets: the later numbering counts, and what is held under an older one is lost.
local outdated = born > 0 and born < number('born')
if born > number('born') then
  call('DEL', ACTIVE, PENDING)
  for _, v in ipairs(call('ZRANGE', VERSIONS, 0, -1)) do
    call('DEL', binds(v))
    forget(tonumber(v))
  end
  call('HSET', STATE, 'born', string.format('%.0f', born), 'n', 0)
end
if n > number('n') and not outdated then
  call('HSET', STATE, 'n', n)
  remember(ACTIVE, ARGV[8])
  remember(PENDING, ARGV[9])
  arm('an older state')
  changed('restored')
end
if fence > number('fence') then
  if number('fence') > 0 then arm('an older state') end
  call('HSET', STATE, 'fence', fence)
end
-- A clock that was set back: what would be over in a while is, and not after as long as it was set back.
local longest_ms = math.max(ttl_ms, LONGEST_TTL_MS)
for _, x in ipairs(call('ZRANGEBYSCORE', NODES, '(' .. now_ms + longest_ms, '+inf')) do
  call('ZADD', NODES, now_ms + ttl_ms, x)
end
if number('guard') > now_ms + longest_ms + 2 * scan_ms then arm('the clock was set back') end
if guarded() then note_peak(tonumber(ARGV[11])) end

-- We live.
local dead_at = call('ZSCORE', NODES, m)
local was_silent = dead_at and tonumber(dead_at) <= now_ms
local told = string.format('%s %s %d', ARGV[12], ARGV[13], math.floor((#ARGV - 16) / 4))
local news = not dead_at or (call('GET', heartbeat(m)) or ''):match('^%S+ %S+') ~= told:match('^%S+ %S+')
call('ZADD', NODES, now_ms + ttl_ms, m)
call('SET', heartbeat(m), told, 'PX', ttl_ms)
if not dead_at then supersede() end
note_peak(call('ZCOUNT', NODES, '(' .. now_ms, '+inf'))
if news then changed('member') end

-- What we hold is ours, unless somebody has a higher fence. What nobody knows of is held again; who has no lease gets
-- none before the guard is over, and whoever has a higher fence has told by then.
local lost, moved = {}, false
for i = 17, #ARGV, 4 do
  local v, shard, mine, state = tonumber(ARGV[i]), ARGV[i + 1], tonumber(ARGV[i + 2]), ARGV[i + 3]
  local bind = read_bind(v, shard)
  local ours = bind and bind.holder == m and bind.fence == mine and bind.state ~= 'handoff' and not outdated
  local others = bind and not ours and bind.fence >= mine
  local known = not outdated and call('ZSCORE', VERSIONS, v)
  if ours and bind.state == state then -- as it was
  elseif ours or (known and not others) then
    write_bind(v, shard, state, m, mine)
    moved = true
  elseif others or not known then
    lost[#lost + 1] = v
    lost[#lost + 1] = tonumber(shard)
  end
end
if moved then changed('bind') end

local fewer = notice(was_silent) > 0
local counts = fewer or (number('recount') == 1 and not guarded())
local proposed = counts and count_votes(tonumber(ARGV[14])) == 1 and target(PENDING).total or 0
local view = head()
return {view, lost, view[1] == tonumber(ARGV[15]) and {} or all(), proposed}
