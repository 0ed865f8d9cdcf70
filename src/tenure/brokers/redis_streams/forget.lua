-- Consumers that hold nothing and have not been heard of for long; what they held is others' by now.
-- KEYS: stream.  ARGV: group, silent for (ms).
local forgotten = 0
for _, consumer in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local about = {}
  for i = 1, #consumer, 2 do
    about[consumer[i]] = consumer[i + 1]
  end
  if about.pending == 0 and about.idle >= tonumber(ARGV[2]) then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], about.name)
    forgotten = forgotten + 1
  end
end
return forgotten
