-- JOIN: become a member, or say again that one is. An older incarnation of the pod that has been silent for one beat
-- is superseded: it ends here and what it held returns.
-- USES rule bells messages
-- KEYS[1] ns             namespace of the fleet
-- ARGV[6] state          living | draining
-- ARGV[7] epoch          the epoch the member remembers, '' for none
-- ARGV[8] next take id   the id of the take whose answer it may still await
-- ARGV[9] given back     take ids that it has put back or parked lately, each between commas
-- ARGV[10..] running     five for each message it runs: take id, seq, deliveries, source, raw; source and raw empty
--                        when it is acknowledged already and only its work goes on
-- RETURNS {1, epoch} | {0, other incarnation, its last beat in ms}    0: two incarnations beat, CLASH
even_when_full()
local pod, state, epoch, next_id = m:match('^(.*)#'), ARGV[6], ARGV[7], ARGV[8]
local old = call('HGET', NAMES, pod)
if old and old ~= m then
  local beat, ttl = last_beat(old)
  if beat and beat > now_ms - ttl / 3 then return {0, old, string.format('%.0f', beat)} end
end

suspect_an_outage()
if old and old ~= m then gone({old}, 'superseded') end
local current = call('GET', EPOCH)
if not current then
  current = m
  call('SET', EPOCH, m)
end
call('HSET', NAMES, pod, m)
call('ZREM', ALIVE, m)
call('ZREM', DRAINING, m)
note_beat(state == 'draining' and DRAINING or ALIVE, m)
log('join', m, 'state', state, 'old', old and old ~= m and old or '')

local runs = {[next_id] = true}
for i = 10, #ARGV, 5 do
  local id, seq, n, source, raw = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4]
  runs[id] = true
  if epoch ~= current then -- Redis lost its data: what runs is held again
    call('HSET', held(m), id, source == '' and '' or entry(seq, n, source, raw))
    log('hold', m, 'id', id, 'seq', seq, 'key', source)
  end
end
forget_ended(runs, tonumber(next_id), ARGV[9])
mark(m)
ring_any()
return {1, current}
