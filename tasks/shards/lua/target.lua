-- TARGET: a person wants so many shards, or leaves their number to the votes again.
-- USES cluster votes
-- KEYS[1] ns              namespace of the bot
-- ARGV[6] total           0: as many as the pods vote for
-- ARGV[7] rounds          votes of one value that count
-- RETURNS 1 | 'none' | 'pending' | 'same' | 'unknown' | 'budget' | 'guard'   'none': the votes decide from now on
if guarded() then return 'guard' end
local total = tonumber(ARGV[6])
local by = total == 0 and 'votes' or 'person'

-- Members must remember who decides, so it counts as a change of the target.
local function decided(active)
  active.by = by
  call('HINCRBY', STATE, 'n', 1)
  write_target(ACTIVE, active)
  changed('decided')
end

local active = target(ACTIVE)
if total == 0 then
  if target(PENDING) then return 'pending' end
  if active and active.by ~= by then decided(active) end
  return count_votes(tonumber(ARGV[7]))
end
local outcome = propose(total, by, 'set by a person')
if outcome == 'same' and active.by ~= by then decided(active) end
return outcome
