-- BIND: bind a queue that expires, or say that it is still in use, as kombu does; and take out of the exchange's table the
-- queues that were bound here and not spoken of for as long as they may be. kombu keeps a table as a whole while anybody
-- uses it: in a fleet whose pods and askers come and go, it grows for ever, and each reply reads all of it.
-- USES rule
-- KEYS[1] ns             namespace of the fleet
-- KEYS[2] table          kombu's set of what is bound to the exchange
-- KEYS[3] deadlines      kombu's zset of exchanges
-- KEYS[4] seen           zset of what is bound here, by when it may go
-- ARGV[6] binding        as kombu writes it
-- ARGV[7] exchange       its name
-- ARGV[8] ttl ms         how long it may be unspoken of
-- RETURNS how many were taken out
local MOST = 100
local until_ms = now_ms + tonumber(ARGV[8])
call('SADD', KEYS[2], ARGV[6])
call('ZADD', KEYS[3], 'GT', until_ms, ARGV[7])
call('ZADD', KEYS[4], 'GT', until_ms, ARGV[6])
call('PEXPIRE', KEYS[4], 2 * tonumber(ARGV[8]))
local gone = call('ZRANGEBYSCORE', KEYS[4], '-inf', now_ms, 'LIMIT', 0, MOST)
for _, binding in ipairs(gone) do
  call('SREM', KEYS[2], binding)
  call('ZREM', KEYS[4], binding)
end
return #gone
