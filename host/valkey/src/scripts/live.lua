-- Renew the lease of a host. Returns 1 if the host was listed.
-- KEYS: hosts. ARGV: this host, length of its lease, time after its end at which a host is forgotten (milliseconds).
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local known = redis.call('ZSCORE', KEYS[1], ARGV[1])
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[3])
return known and 1 or 0
