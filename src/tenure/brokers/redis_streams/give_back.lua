-- Out of the stream, if this consumer still holds it, and into the waiting ones.
-- KEYS: stream, later.  ARGV: group, consumer, id, run, delay (ms), most that may wait.
local held = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[3], ARGV[3], 1, ARGV[2])
if not held[1] then
  return 0
end
redis.call('XACK', KEYS[1], ARGV[1], ARGV[3])
redis.call('XDEL', KEYS[1], ARGV[3])
if tonumber(ARGV[5]) <= 0 then
  redis.call('XADD', KEYS[1], '*', 'run', ARGV[4])
  return 1
end
local time = redis.call('TIME')
local due = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[5]
redis.call('ZADD', KEYS[2], 'LT', due, ARGV[4])
redis.call('ZREMRANGEBYRANK', KEYS[2], ARGV[6], -1)
return 1
