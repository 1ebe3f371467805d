-- DEAD_DROP: dead letters are deleted for good, each once however many ask.
-- USES rule
-- KEYS[1] ns             namespace of the fleet
-- ARGV[6..] id           of the dead letters
-- RETURNS for each id: 'OK' | '' no such dead letter
even_when_full()
local answers = {}
for i = 6, #ARGV do
  local dropped = call('XDEL', ns .. 'dead', ARGV[i]) == 1
  answers[i - 5] = dropped and 'OK' or ''
  if dropped then log('dead_drop', '', 'letter', ARGV[i]) end
end
return answers
