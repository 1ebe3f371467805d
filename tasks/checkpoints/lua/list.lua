-- LIST: what is known of some checkpoints; those that have expired are forgotten.
-- KEYS[1] checkpoints    zset of the ids that have one
-- KEYS[2..] checkpoint   hashes of tasks
-- ARGV[1..] id           of the same tasks
-- RETURNS {{id, task, status, progress, age_ms, size} ...}
local call, rows = redis.call, {}
local t = call('TIME')
local now_ms = t[1] * 1000 + math.floor(t[2] / 1000)
for i, id in ipairs(ARGV) do
  local key = KEYS[i + 1]
  local task = redis.pcall('HGET', key, 'task')
  if task and type(task) ~= 'table' then
    local updated = tonumber(call('HGET', key, 'last_updated') or '') or 0
    rows[#rows + 1] = {id, task, call('HGET', key, 'status') or '', call('HGET', key, 'progress') or '',
      string.format('%.0f', math.max(0, now_ms - updated)), #(call('HGET', key, 'context') or '')}
  else
    call('ZREM', KEYS[1], id)
  end
end
return rows
