-- RESIGN: a beat ends in order. Who led makes room at once.
-- USES rule schedule
-- KEYS[1] ns             namespace of the fleet
-- ARGV[6] term           of the member, '' when it did not lead
-- RETURNS 1 | 0          it led | it did not
even_when_full()
call('ZREM', BEATS_SEEN, m)
if not leads(ARGV[6]) then return 0 end
call('DEL', LEASE)
return 1
