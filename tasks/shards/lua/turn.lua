-- TURN: who works on a guild's line begins it, ends an event of it, and learns the next one.
-- USES cluster line
-- KEYS[1] ns              namespace of the bot
-- ARGV[6] guild
-- ARGV[7] owner           id of the task
-- ARGV[8] turn            as it was told at its start; 0: it starts
-- ARGV[9] done            how many heads it has worked on in this turn; told again, none goes twice
-- ARGV[10] begin          1: it begins the next head now; 0: it only asks; -1: it is in its queue again, and ends
-- ARGV[11] held           key of the hash that holds its message, '' unknown
-- ARGV[12] take           field of that hash
-- RETURNS {turn, tries, message}   the head, and how often it was begun, this time included
--       | {turn}          nothing is left: the turn is over
--       | {0}             another one has the line
local guild = ARGV[6]
local at = turn(guild)
if call('HGET', at, 'owner') ~= ARGV[7] then return {0} end
local mine = tonumber(ARGV[8])
if mine == 0 then
  mine = call('HINCRBY', at, 'turn', 1)
  call('HSET', at, 'done', 0)
elseif tonumber(call('HGET', at, 'turn')) ~= mine then return {0} end
if tonumber(ARGV[9]) > tonumber(call('HGET', at, 'done')) then
  call('HINCRBY', at, 'done', 1)
  call('LPOP', line(guild))
  call('HDEL', at, 'tries')
end
local message = call('LINDEX', line(guild), 0)
if not message then
  call('DEL', at)
  return {mine}
end
local begin = tonumber(ARGV[10])
if begin == 1 then at_work(at, ARGV[11], ARGV[12])
elseif begin == -1 then in_its_queue(at) end
call('PEXPIRE', at, TURN_MS)
return {mine, call('HINCRBY', at, 'tries', math.max(begin, 0)), message}
