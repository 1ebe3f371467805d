-- LEAVE: the member ends in order. What it holds is free at once, and the quorum is lower by one.
-- USES cluster votes
-- KEYS[1] ns              namespace of the bot
-- ARGV[6] rounds          votes of one value that count
-- RETURNS 1 | 0           0: it was no member
if call('ZREM', NODES, m) == 0 then return 0 end
call('DEL', heartbeat(m))
call('HDEL', ns .. 'vote:' .. number('n'), m)
unbind_all(m, 'handoff')
lower_peak()
changed('left')
count_votes(tonumber(ARGV[6]))
return 1
