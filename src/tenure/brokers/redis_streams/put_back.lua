-- Read by this consumer, which has no room for it: as if nobody had taken it.
-- KEYS: stream.  ARGV: group, consumer, id.
local id = ARGV[3]
local held = redis.call('XPENDING', KEYS[1], ARGV[1], id, id, 1, ARGV[2])
if not held[1] then
  return 0
end
local last
for _, group in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
  local about = {}
  for i = 1, #group, 2 do
    about[group[i]] = group[i + 1]
  end
  if about.name == ARGV[1] then
    last = about['last-delivered-id']
  end
end
if redis.call('XRANGE', KEYS[1], '(' .. last, '+', 'COUNT', 1)[1] then
  -- Others wait behind it, so no reader waits: held since ever, it is taken over before them.
  redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, id, 'TIME', 0, 'JUSTID')
  return 1
end
local kept = redis.call('XRANGE', KEYS[1], id, id)
redis.call('XACK', KEYS[1], ARGV[1], id)
if kept[1] then -- added again, it wakes a reader
  redis.call('XDEL', KEYS[1], id)
  redis.call('XADD', KEYS[1], '*', unpack(kept[1][2]))
end
return 1
