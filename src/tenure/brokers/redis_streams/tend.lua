-- Move into the stream what is due, and take over what others have held for too long.
-- KEYS: stream, later.  ARGV: group, consumer, hidden for (ms), how many, longest stream.
-- Answers what was taken over, and in how many ms the next is due (-1: none waits).
local taken = redis.call('XAUTOCLAIM', KEYS[1], ARGV[1], ARGV[2], ARGV[3], '0-0', 'COUNT', ARGV[4])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local due = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, 100)
for _, run in ipairs(due) do
  redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[5], '*', 'run', run)
  redis.call('ZREM', KEYS[2], run)
end
local first = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
return {taken[2], first[2] and math.max(0, first[2] - now) or -1}
