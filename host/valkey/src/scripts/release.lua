-- Give back, or charge, places of this host.
-- KEYS: places by host. ARGV: this host, change, milliseconds to keep the key.
if redis.call('HINCRBY', KEYS[1], ARGV[1], ARGV[2]) <= 0 then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
return 0
