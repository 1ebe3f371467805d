-- The schedule: who leads it, and what has run. Its times are microseconds of the server's clock.
--   schedule:lease    string  'member term' of the beat that leads; Redis ends it, nobody's clock does
--   schedule:entries  hash    name of an entry -> 'due last ran runs digest': its next due time, the due time that it ran
--                             for last, when that was, how often it ran, and the digest of its schedule
--   schedule:beats    zset    member -> when it last asked to lead, for people to see who stands by
local LEASE, ENTRIES, BEATS_SEEN = ns .. 'schedule:lease', ns .. 'schedule:entries', ns .. 'schedule:beats'
local SEEN_MS = 60000

local moment = call('TIME')
local now_us = moment[1] * 1000000 + moment[2]
local function digits(number) return string.format('%.0f', number) end
local function leads(term) return term ~= '' and call('GET', LEASE) == term end
