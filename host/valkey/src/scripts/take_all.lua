-- Take from several token buckets and places as if one after the other, or from none; or tell what taking would answer.
-- KEYS: hosts, then one for each withdrawal. ARGV: this host, milliseconds to keep places, 1 to take or 0 to ask, then for each
-- withdrawal 'b', the time for which the cost flows in and the period (microseconds), or 'p', places and capacity.
-- Returns for each: 1 if it is allowed, how much was drawn before it, and how much is drawn after all of it.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

local function drawn(kind, key)
  if kind == 'b' then
    return math.max((tonumber(redis.call('GET', key)) or 0) - now, 0)
  end
  local held, sum = redis.call('HGETALL', key), 0
  for at = 1, #held, 2 do
    local host, count = held[at], tonumber(held[at + 1])
    local ends = host == ARGV[1] or redis.call('ZSCORE', KEYS[1], host)
    if not ends then
      redis.call('HDEL', key, host)
    elseif ends == true or tonumber(ends) > math.floor(now / 1000) then
      sum = sum + count
    end
  end
  return sum
end

local before, after, seen, all = {}, {}, {}, true
local answers = {}
for at = 2, #KEYS do
  local key, arg = KEYS[at], 3 * at - 2
  if not before[key] then
    before[key] = drawn(ARGV[arg], key)
    after[key] = before[key]
  end
  seen[at] = after[key]
  local wanted = after[key] + tonumber(ARGV[arg + 1])
  local allowed = wanted <= tonumber(ARGV[arg + 2])
  if allowed then
    after[key] = wanted
  else
    all = false
  end
  table.insert(answers, allowed and '1' or '0')
  table.insert(answers, string.format('%.0f', seen[at]))
  table.insert(answers, string.format('%.0f', wanted))
end
for at = 2, #KEYS do
  local key, arg = KEYS[at], 3 * at - 2
  if not all then
    answers[3 * (at - 1)] = string.format('%.0f', before[key])
  elseif ARGV[3] == '1' and after[key] > before[key] then
    if ARGV[arg] == 'b' then
      local full = now + after[key]
      redis.call('SET', key, string.format('%.0f', full), 'PXAT', string.format('%.0f', math.ceil(full / 1000)))
    else
      redis.call('HINCRBY', key, ARGV[1], string.format('%.0f', after[key] - before[key]))
      redis.call('PEXPIRE', key, ARGV[2])
    end
    before[key] = after[key]
  end
end
return answers
