-- DEAD_REQUEUE: dead letters go back to their queues, each once however many ask, to be delivered as often as the limit
-- allows once more. Their history stays theirs. One whose queue does not take it stays.
-- USES rule bells messages
-- KEYS[1] ns             namespace of the fleet
-- ARGV[6] where          head | tail
-- ARGV[7] by             who sends them on their way again, for their history
-- ARGV[8..] id, raw      of the dead letters; at the head the last one comes first. raw: the message to send in its
--                        place, which carries its history; '' for as it stands
-- RETURNS for each id: 'OK' | '' no such dead letter | why its queue does not take it
even_when_full()
local command, answers = ARGV[6] == 'tail' and 'LPUSH' or 'RPUSH', {}
for i = 8, #ARGV, 2 do
  local found = call('XRANGE', DEAD, ARGV[i], ARGV[i])[1]
  local answer = ''
  if found then
    local letter = {}
    for j = 1, #found[2], 2 do letter[found[2][j]] = found[2][j + 1] end
    local n = tonumber((letter.deliveries or ''):match('^%d+$') or 1)
    n = math.max(n, 1)    -- never 0: what is acknowledged with 0 leaves its history
    local line = {'', 'requeued by hand', ARGV[7]}
    local told, history = pcall(tell, letter.history, line)
    if not told then history = tell(nil, line) end
    local pushed = {err = 'its entry names no queue or no message'}
    if letter.raw and ARGV[i + 1] ~= '' then letter.raw, history = ARGV[i + 1], nil end
    if letter.source and letter.raw then pushed = redis.pcall(command, letter.source, letter.raw) end
    answer = type(pushed) == 'table' and pushed.err or 'OK'
    if answer == 'OK' then
      remember(letter.source, letter.raw, n, history, n)
      call('XDEL', DEAD, ARGV[i])
      log('dead_requeue', '', 'letter', ARGV[i], 'key', letter.source, 'where', ARGV[6], 'by', ARGV[7])
      ring_for(letter.source)
    end
  end
  answers[#answers + 1] = answer
end
return answers
