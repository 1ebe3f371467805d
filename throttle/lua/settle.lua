-- SETTLE: what the code of the member that leads declares takes the place of all records; what it does not name vanishes.
-- USES rule schedule
-- KEYS[1] ns             namespace of the fleet
-- ARGV[6] term           of the member
-- ARGV[7..] entry        name, record, name, record, ...
-- RETURNS 1 | 0          done | the member does not lead (any more); no effect
even_when_full()
if not leads(ARGV[6]) then return 0 end
call('DEL', ENTRIES)
for i = 7, #ARGV, 2 do call('HSET', ENTRIES, ARGV[i], ARGV[i + 1]) end
return 1
