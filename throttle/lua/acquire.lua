-- ACQUIRE: the rule without a message. A permit is an empty entry of held:<member>; ACK releases it.
-- USES rule
-- KEYS[1] ns             namespace of the fleet
-- ARGV[6] permit id      the next number of the process' counter; the same id again is the same permit
-- ARGV[7] critical       1: the critical lane
-- RETURNS 1 | 0 | -1     admitted | denied, or this number was released before | LOST
even_when_full()
if not living(m) then return -1 end
if call('HEXISTS', held(m), ARGV[6]) == 1 then return 1 end
local others, cap = busy(m), capacity()
if made_before(ARGV[6]) or (ARGV[7] ~= '1' and others >= cap) then return 0 end
make(ARGV[6], '')
log('take', m, 'id', ARGV[6], 'seq', 0, 'lane', ARGV[7] == '1' and 'critical' or 'normal', 'key', '',
  'deliveries', 0, 'busy', others, 'capacity', cap)
return 1
