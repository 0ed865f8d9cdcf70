-- Done with these, as far as this consumer still holds them.
-- KEYS: stream.  ARGV: group, consumer, ids ...
local settled = 0
for i = 3, #ARGV do
  local held = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1, ARGV[2])
  if held[1] then
    redis.call('XACK', KEYS[1], ARGV[1], ARGV[i])
    redis.call('XDEL', KEYS[1], ARGV[i])
    settled = settled + 1
  end
end
return settled
