-- Take from a token bucket, or tell what taking would answer.
-- KEYS: bucket. ARGV: time for which the cost flows in, period (microseconds), 1 to take or 0 to ask.
-- The state is the time at which the bucket is full again; none is a full bucket.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local ahead = math.max((tonumber(redis.call('GET', KEYS[1])) or 0) - now, 0)
local cost = tonumber(ARGV[1])
local wanted = ahead + cost
if wanted > tonumber(ARGV[2]) then
  return {0, string.format('%.0f', ahead)}
end
if ARGV[3] == '1' and cost > 0 then
  local full = now + wanted
  redis.call('SET', KEYS[1], string.format('%.0f', full), 'PXAT', string.format('%.0f', math.ceil(full / 1000)))
end
return {1, string.format('%.0f', wanted)}
