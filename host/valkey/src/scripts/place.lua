-- Take places among what is under way on all hosts, or tell what taking would answer.
-- KEYS: places by host, hosts. ARGV: this host, places, capacity, 1 to take or 0 to ask, milliseconds to keep the key.
-- A host whose lease has ended has nothing under way; one that is no longer listed is forgotten.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local held = redis.call('HGETALL', KEYS[1])
local sum = 0
for at = 1, #held, 2 do
  local host, count = held[at], tonumber(held[at + 1])
  if host == ARGV[1] then
    sum = sum + count
  else
    local ends = redis.call('ZSCORE', KEYS[2], host)
    if not ends then
      redis.call('HDEL', KEYS[1], host)
    elseif tonumber(ends) > now then
      sum = sum + count
    end
  end
end
local wanted = sum + tonumber(ARGV[2])
if wanted > tonumber(ARGV[3]) then
  return {0, string.format('%.0f', sum)}
end
if ARGV[4] == '1' and wanted > sum then
  redis.call('HINCRBY', KEYS[1], ARGV[1], ARGV[2])
  redis.call('PEXPIRE', KEYS[1], ARGV[5])
end
return {1, string.format('%.0f', wanted)}
