-- VOTE: what Discord told this member, and the budget that it told with it.
-- USES cluster votes
-- KEYS[1] ns              namespace of the bot
-- ARGV[6] total           shards that Discord recommends
-- ARGV[7] told            rounds in which it said so
-- ARGV[8] rounds          that count
-- RETURNS 'none' | 1 | 'pending' | 'same' | 'unknown' | 'budget'   what came of counting
if not living(m) then return 'none' end
local votes = ns .. 'vote:' .. number('n')
call('HSET', votes, m, string.format('%s %s %.0f', ARGV[6], ARGV[7], now_ms))
call('PEXPIRE', votes, VOTE_MS)
return count_votes(tonumber(ARGV[8]))
