-- Charge a token bucket, or give back to it.
-- KEYS: bucket. ARGV: time for which the amount flows in, negative to give back; the longest that a bucket may be drawn ahead
-- (microseconds).
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local ahead = math.max((tonumber(redis.call('GET', KEYS[1])) or 0) - now, 0)
ahead = math.min(math.max(ahead + tonumber(ARGV[1]), 0), tonumber(ARGV[2]))
if ahead == 0 then
  redis.call('DEL', KEYS[1])
else
  local full = now + ahead
  redis.call('SET', KEYS[1], string.format('%.0f', full), 'PXAT', string.format('%.0f', math.ceil(full / 1000)))
end
return string.format('%.0f', ahead)
