-- PUT: publish a message and ring one waiter that it concerns. A full Redis refuses it, and the producer sees that.
-- USES rule bells
-- KEYS[1] ns             namespace of the fleet
-- KEYS[2] queue          queue key
-- ARGV[6] message        as kombu wrote it
-- RETURNS length of the queue
local length = call('LPUSH', KEYS[2], ARGV[6])
ring_for(KEYS[2])
return length
