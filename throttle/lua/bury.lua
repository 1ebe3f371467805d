-- BURY: a message that kombu holds (the requeue gate) becomes a dead letter, and kombu forgets it, in one step.
-- USES rule bells messages
-- KEYS[1] ns             namespace of the fleet
-- KEYS[2] unacked        kombu's hash of what is delivered
-- KEYS[3] unacked index  kombu's zset of it
-- ARGV[6] tag            kombu's delivery tag
-- ARGV[7] source         queue key that it goes back to, if a person sends it
-- ARGV[8] raw            the message
-- ARGV[9] reason         in a word or two
-- ARGV[10] text          the error, '' for none
-- RETURNS 1 | 0          0: kombu holds it no more, no effect
even_when_full()
if call('HDEL', KEYS[2], ARGV[6]) == 0 then return 0 end
call('ZREM', KEYS[3], ARGV[6])
call('XADD', DEAD, '*', 'source', ARGV[7], 'raw', ARGV[8], 'deliveries', 1, 'reason', ARGV[9], 'member', m,
  'at', now_ms, 'history', tell(nil, {m, ARGV[9], ARGV[10]}))
count('dead', 1)
return 1
