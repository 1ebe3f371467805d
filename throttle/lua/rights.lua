-- RIGHTS: what this user of Redis may do inside a script. Nothing is changed: what a try writes, the last one removes.
-- USES rule
-- KEYS[1] ns             namespace of the fleet
-- KEYS[2..] key          queues, and what else is to be reached
-- ARGV[6..] try          a command with its words as a JSON array
-- RETURNS {1 | 0...}     1: allowed; for each try, then for each key
local function allowed(...)
  local answer = redis.pcall(...)
  local err = type(answer) == 'table' and answer.err or ''
  return (err:find('permission') or err:find('The user executing the script')) and 0 or 1
end
local answers = {}
for i = 6, #ARGV do answers[#answers + 1] = allowed(unpack(cjson.decode(ARGV[i]))) end
for i = 2, #KEYS do answers[#answers + 1] = allowed('RPOP', KEYS[i], 0) end
return answers
