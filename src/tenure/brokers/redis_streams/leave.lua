-- This consumer goes; what it still holds is others' at once.
-- KEYS: stream.  ARGV: group, consumer.
local held = redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1000, ARGV[2])
for _, entry in ipairs(held) do
  local kept = redis.call('XRANGE', KEYS[1], entry[1], entry[1])
  redis.call('XACK', KEYS[1], ARGV[1], entry[1])
  if kept[1] then
    redis.call('XDEL', KEYS[1], entry[1])
    redis.call('XADD', KEYS[1], '*', unpack(kept[1][2]))
  end
end
redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
return #held
