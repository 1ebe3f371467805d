-- TARGET: a person wants so many shards.
-- USES cluster votes
-- KEYS[1] ns              namespace of the bot
-- ARGV[6] total
-- RETURNS 1 | 'pending' | 'same' | 'unknown' | 'budget' | 'guard'
if guarded() then return 'guard' end
return propose(tonumber(ARGV[6]), 'set by a person')
