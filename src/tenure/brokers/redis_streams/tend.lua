-- Take over what others have held for too long, move into the stream what is due, and take what
-- nobody took yet.
-- KEYS: stream, later.  ARGV: group, consumer, hidden for (ms), how many, longest stream.
-- Answers what was taken, and in how many ms the next is due (-1: none waits).
local taken = redis.call('XAUTOCLAIM', KEYS[1], ARGV[1], ARGV[2], ARGV[3], '0-0', 'COUNT', ARGV[4])[2]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local due = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, 100)
for _, run in ipairs(due) do
  redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[5], '*', 'run', run)
  redis.call('ZREM', KEYS[2], run)
end
local room = ARGV[4] - #taken
if room > 0 then
  local fresh = redis.call('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', room, 'STREAMS', KEYS[1], '>')
  for _, entry in ipairs(fresh and fresh[1][2] or {}) do
    table.insert(taken, entry)
  end
end
local first = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
return {taken, first[2] and math.max(0, first[2] - now) or -1}
