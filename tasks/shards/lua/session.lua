-- SESSION: what RESUME needs of a shard's session. Changes nothing.
-- USES cluster session
-- KEYS[1] ns              namespace of the bot
-- ARGV[6] v               the target's version
-- ARGV[7] shard
-- RETURNS {id, sequence, resume URL}, {} when there is none
local saved = read_session(ARGV[6], ARGV[7])
if not saved or saved.id == NONE then return {} end
return {saved.id, saved.sequence, saved.url}
