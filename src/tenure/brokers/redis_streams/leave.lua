-- This consumer goes; what it still holds becomes visible in time, so then its name stays.
-- KEYS: stream.  ARGV: group, consumer.
local held = redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2])
if held[1] then
  return 0
end
redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
return 1
