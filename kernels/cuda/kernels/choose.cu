// Tokens by the rules of the host's sampler: adjustments, mask, temperature, top-k, min-p, top-p, draw.
//
// The host's tokens to the bit: weights are computed by the same operations in the same order
// (`kernels/src/exp.rs`), each rounded by itself, and summed as whole numbers, which no order of
// additions changes (`kernels/src/select.rs`).
#include "device.cuh"

namespace choosing {

typedef unsigned long long u64;

// Of the likeliest token's weight, 2^-40 is the unit.
constexpr float UNITS = 1099511627776.0f;
// The bits of 2^-40, which order weights as their values do.
constexpr unsigned UNIT_BITS = 0x2b800000;
constexpr int REPORTED_MAX = 20;
// A search looks at so many bits at once. All bits between 2^-40 and 1 are three times as many.
constexpr int DIGIT = 10;
constexpr int BINS = 1 << DIGIT;
constexpr unsigned WARPS_MAX = 32;

// What is done to the logit of one token before all else.
struct Adjustment {
    int token;
    float bias;
    float repetition;
    float penalty;
};

struct Choice {
    u64 random;
    // Of 2^32.
    u64 top_p;
    // 0 takes the highest.
    float temperature;
    float min_p;
    // 0 is all.
    unsigned top_k;
    int row;
    int first_adjustment;
    int adjustments;
    // Which mask; negative is none.
    int mask;
    // How many of the likeliest are reported; negative reports nothing.
    int reported;
};

struct Chosen {
    // Sum of all weights at temperature 1 before the mask, and the highest logit then.
    u64 total;
    float highest;
    // Of the token.
    float logit;
    // -1 where nothing can be chosen, -2 where a logit is no number.
    int token;
    int padding;
    int likeliest[REPORTED_MAX];
    float logits[REPORTED_MAX];
};

struct ChooseParams {
    float *logits;
    const Choice *choices;
    const Adjustment *adjustments;
    // Bits of the tokens that may be chosen, `words` for each mask.
    const unsigned *masks;
    Chosen *chosen;
    int vocabulary;
    int words;
};

// What a block shares. Its size is known to `choose.rs`.
struct Shared {
    u64 sums[BINS];
    u64 by_warp[WARPS_MAX];
    u64 sum;
    u64 left;
    unsigned counts[BINS];
    unsigned ties_by_warp[WARPS_MAX];
    unsigned ties;
    unsigned place;
};
static_assert(sizeof(Shared) == 12696 && sizeof(Choice) == 48 && sizeof(Chosen) == 184, "as on the host");

// A row, its mask, and how it is weighed.
struct Weighed {
    const float *logits;
    const unsigned *mask;
    int vocabulary;
    int words;
    float highest;
    float temperature;
};

DEVICE bool may_follow(const Weighed &row, int token) {
    if (row.mask == nullptr) return true;
    const int word = token / 32;
    return word < row.words && (row.mask[word] >> (token % 32) & 1);
}

// `kernels/src/exp.rs`, of numbers that are not positive.
DEVICE float exp_as_host(float x) {
    const float ROUND = 12582912.0f;
    const float shifted = __fadd_rn(__fmul_rn(x, 1.44269504088896340736f), ROUND);
    const float power = __fsub_rn(shifted, ROUND);
    const float rest = __fsub_rn(__fsub_rn(x, __fmul_rn(power, 0.6933594f)),
                                 __fmul_rn(power, -2.1219444e-4f));
    float series = 1.9875691e-4f;
    series = __fadd_rn(__fmul_rn(series, rest), 1.3981999e-3f);
    series = __fadd_rn(__fmul_rn(series, rest), 8.333452e-3f);
    series = __fadd_rn(__fmul_rn(series, rest), 4.1665796e-2f);
    series = __fadd_rn(__fmul_rn(series, rest), 1.6666665e-1f);
    series = __fadd_rn(__fmul_rn(series, rest), 5e-1f);
    const float value =
        __fadd_rn(__fadd_rn(__fmul_rn(__fmul_rn(series, rest), rest), rest), 1.0f);
    const unsigned exponent = __float_as_uint(shifted) - __float_as_uint(ROUND);
    return __fmul_rn(value, __uint_as_float((exponent + 127) << 23));
}

// The bits of a token's weight, 0 where it has none.
DEVICE unsigned weigh(const Weighed &row, int token) {
    if (!may_follow(row, token)) return 0;
    const float scaled = __fdiv_rn(__fsub_rn(row.logits[token], row.highest), row.temperature);
    const unsigned bits = scaled > -28.0f ? __float_as_uint(exp_as_host(scaled)) : 0;
    return bits >= UNIT_BITS ? bits : 0;
}

DEVICE u64 units(unsigned weight) { return (u64)__fmul_rn(__uint_as_float(weight), UNITS); }

DEVICE u64 of_lane(u64 value, unsigned lane) {
    const unsigned low = __shfl_sync(WHOLE_WARP, (unsigned)value, lane);
    const unsigned high = __shfl_sync(WHOLE_WARP, (unsigned)(value >> 32), lane);
    return (u64)high << 32 | low;
}

struct Most {
    static DEVICE u64 of(u64 a, u64 b) { return a > b ? a : b; }
};

struct Sum {
    static DEVICE u64 of(u64 a, u64 b) { return a + b; }
};

template <class Op> DEVICE u64 over_warp(u64 value) {
    for (unsigned mask = 16; mask > 0; mask >>= 1)
        value = Op::of(value, of_lane(value, threadIdx.x % WARP ^ mask));
    return value;
}

// Of what all threads bring, for all of them.
template <class Op> DEVICE u64 over_block(u64 value, Shared &shared) {
    value = over_warp<Op>(value);
    if (threadIdx.x % WARP == 0) shared.by_warp[threadIdx.x / WARP] = value;
    __syncthreads();
    u64 all = shared.by_warp[0];
    for (unsigned warp = 1; warp < blockDim.x / WARP; warp++) all = Op::of(all, shared.by_warp[warp]);
    __syncthreads();
    return all;
}

// Of the lanes up to this one.
DEVICE u64 up_to_lane(u64 value) {
    const unsigned lane = threadIdx.x % WARP;
    for (unsigned step = 1; step < WARP; step <<= 1) {
        const u64 before = of_lane(value, lane - step);
        if (lane >= step) value += before;
    }
    return value;
}

// Higher logits first, and of equals the lower token. Never 0, and never all bits.
DEVICE u64 rank(float logit, int token) {
    const unsigned bits = __float_as_uint(logit);
    const unsigned order = bits >> 31 ? ~bits : bits | 0x80000000u;
    return (u64)order << 32 | (0xffffffffu - (unsigned)token);
}

DEVICE int token_of(u64 rank) { return (int)(0xffffffffu - (unsigned)rank); }

// The likeliest tokens, before the mask.
DEVICE void report(const Weighed &row, int count, Chosen *chosen, Shared &shared) {
    u64 total = 0;
    for (int i = threadIdx.x; i < row.vocabulary; i += blockDim.x) total += units(weigh(row, i));
    total = over_block<Sum>(total, shared);
    if (threadIdx.x == 0) {
        chosen->total = total;
        chosen->highest = row.highest;
    }
    u64 below = ~0ull, mine = 0;
    bool stale = true;
    for (int place = 0; place < count; place++) {
        // Whoever's was taken looks for the next one of its own.
        if (stale) {
            mine = 0;
            for (int i = threadIdx.x; i < row.vocabulary; i += blockDim.x) {
                const u64 own = rank(row.logits[i], i);
                if (own < below) mine = Most::of(mine, own);
            }
        }
        const u64 most = over_block<Most>(mine, shared);
        stale = mine == most;
        below = most;
        if (threadIdx.x == 0) {
            chosen->likeliest[place] = most == 0 ? -1 : token_of(most);
            chosen->logits[place] = most == 0 ? 0.0f : row.logits[token_of(most)];
        }
    }
}

// What is kept: tokens that weigh more than `weight`, and the first `ties` of those that weigh as much.
struct Cut {
    unsigned weight;
    unsigned ties;
    // Weight of all that is kept.
    u64 total;
};

// Of tokens that weigh `floor` or more, the heaviest: as many as `limit`, or, if `by_weight`, as
// few as reach the part `limit` (of 2^32) of `total`, or of all of them where that is 0.
DEVICE Cut cut(const Weighed &row, unsigned floor, bool by_weight, u64 limit, u64 total,
               Shared &shared) {
    unsigned prefix = 0;
    for (int shift = 2 * DIGIT; shift >= 0; shift -= DIGIT) {
        for (int bin = threadIdx.x; bin < BINS; bin += blockDim.x) {
            shared.sums[bin] = 0;
            shared.counts[bin] = 0;
        }
        __syncthreads();
        for (int i = threadIdx.x; i < row.vocabulary; i += blockDim.x) {
            const unsigned weight = weigh(row, i), key = weight - UNIT_BITS;
            if (weight < floor || key >> (shift + DIGIT) != prefix) continue;
            atomicAdd(&shared.counts[key >> shift & (BINS - 1)], 1u);
            atomicAdd(&shared.sums[key >> shift & (BINS - 1)], units(weight));
        }
        __syncthreads();
        constexpr int OWN = BINS / WARP;
        if (threadIdx.x < WARP) {
            u64 sum = 0;
            unsigned count = 0;
            for (int bin = threadIdx.x * OWN; bin < (int)(threadIdx.x + 1) * OWN; bin++) {
                sum += shared.sums[bin];
                count += shared.counts[bin];
            }
            shared.by_warp[threadIdx.x] = sum;
            shared.ties_by_warp[threadIdx.x] = count;
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            if (shift == 2 * DIGIT) {
                shared.sum = 0;
                shared.left = limit;
                if (by_weight) {
                    u64 all = total;
                    for (unsigned part = 0; total == 0 && part < WARP; part++)
                        all += shared.by_warp[part];
                    // The product has more bits than there are.
                    shared.left = (all >> 32) * limit + ((all & 0xffffffffu) * limit >> 32);
                    if (shared.left == 0) shared.left = 1;
                }
            }
            int part = WARP - 1;
            for (; part >= 0; part--) {
                const u64 there = by_weight ? shared.by_warp[part] : shared.ties_by_warp[part];
                if (shared.left <= there) break;
                shared.left -= there;
                shared.sum += shared.by_warp[part];
            }
            int bin = (part + 1) * OWN - 1;
            for (; part >= 0 && bin >= part * OWN; bin--) {
                const u64 there = by_weight ? shared.sums[bin] : shared.counts[bin];
                if (shared.left <= there) break;
                shared.left -= there;
                shared.sum += shared.sums[bin];
            }
            // All are fewer than the limit: `part` went below.
            shared.place = part < 0 ? BINS : bin;
        }
        __syncthreads();
        if (shared.place == BINS) return Cut{floor - 1, 0, shared.sum};
        prefix = prefix << DIGIT | shared.place;
    }
    const unsigned weight = prefix + UNIT_BITS;
    const u64 each = units(weight), left = shared.left;
    const u64 ties = by_weight ? (left + each - 1) / each : left;
    return Cut{weight, (unsigned)ties, shared.sum + ties * each};
}

// A token by its weight, from those that are kept, in the order of the tokens: the first one up to
// which they exceed the part `random` (of 2^64) of all. Exactly one thread is given it, the others -1.
DEVICE int draw(const Weighed &row, const Cut &cut, u64 random, Shared &shared) {
    const unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    const int stretch = (row.vocabulary + (int)blockDim.x - 1) / (int)blockDim.x * (int)WARP;
    const int first = (int)warp * stretch;
    const int end = first + stretch < row.vocabulary ? first + stretch : row.vocabulary;
    u64 sum = 0, ties = 0;
    for (int i = first + (int)lane; i < end; i += WARP) {
        const unsigned weight = weigh(row, i);
        if (weight > cut.weight) sum += units(weight);
        if (weight == cut.weight && cut.ties > 0) ties++;
    }
    sum = over_warp<Sum>(sum);
    ties = over_warp<Sum>(ties);
    if (lane == 0) {
        shared.by_warp[warp] = sum;
        shared.ties_by_warp[warp] = (unsigned)ties;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        u64 left = __umul64hi(random, cut.total);
        unsigned ties_left = cut.ties, found = 0;
        for (; found + 1 < warps; found++) {
            const unsigned there = shared.ties_by_warp[found];
            const unsigned kept = there < ties_left ? there : ties_left;
            const u64 weight =
                shared.by_warp[found] + (kept == 0 ? 0 : kept * units(cut.weight));
            if (left < weight) break;
            left -= weight;
            ties_left -= kept;
        }
        shared.place = found;
        shared.left = left;
        shared.ties = ties_left;
    }
    __syncthreads();
    int token = -1;
    if (warp == shared.place) {
        u64 left = shared.left, ties_left = shared.ties;
        for (int start = first; start < end; start += WARP) {
            const int i = start + (int)lane;
            const unsigned weight = i < end ? weigh(row, i) : 0;
            const bool tie = weight == cut.weight && cut.ties > 0;
            const u64 ties_here = up_to_lane(tie);
            const bool kept = weight > cut.weight || (tie && ties_here <= ties_left);
            const u64 own = kept ? units(weight) : 0, here = up_to_lane(own);
            if (left < here && left >= here - own) token = i;
            const u64 all = of_lane(here, WARP - 1), all_ties = of_lane(ties_here, WARP - 1);
            if (left < all) break;
            left -= all;
            ties_left -= all_ties < ties_left ? all_ties : ties_left;
        }
    }
    return token;
}

// A block of at most 1024 threads for each choice. Dynamic shared memory: a `Shared`.
DEVICE void choose(const ChooseParams &p) {
    let_next_begin();
    wait_for_last();
    Shared &shared = *(Shared *)shared_memory;
    const Choice choice = p.choices[blockIdx.x];
    Chosen *chosen = p.chosen + blockIdx.x;
    float *logits = p.logits + (size_t)choice.row * p.vocabulary;
    for (int i = threadIdx.x; i < choice.adjustments; i += blockDim.x) {
        const Adjustment adjustment = p.adjustments[choice.first_adjustment + i];
        const float biased = __fadd_rn(logits[adjustment.token], adjustment.bias);
        const float repeated = biased > 0.0f ? __fdiv_rn(biased, adjustment.repetition)
                                             : __fmul_rn(biased, adjustment.repetition);
        logits[adjustment.token] = __fsub_rn(repeated, adjustment.penalty);
    }
    __syncthreads();
    Weighed row = {logits, nullptr, p.vocabulary, p.words, 0.0f, 1.0f};
    const unsigned *mask =
        choice.mask < 0 ? nullptr : p.masks + (size_t)choice.mask * p.words;
    const float infinity = __uint_as_float(0x7f800000u);
    u64 best = 0, best_allowed = 0;
    bool numbers = true;
    row.mask = mask;
    for (int i = threadIdx.x; i < p.vocabulary; i += blockDim.x) {
        numbers &= logits[i] < infinity;
        // Zeros of both signs are equals.
        const u64 own = rank(__fadd_rn(logits[i], 0.0f), i);
        if (logits[i] == -infinity) continue;
        best = Most::of(best, own);
        if (may_follow(row, i)) best_allowed = Most::of(best_allowed, own);
    }
    best = over_block<Most>(numbers ? best : ~0ull, shared);
    best_allowed = over_block<Most>(best_allowed, shared);
    if (best == ~0ull || best_allowed == 0) {
        if (threadIdx.x == 0) chosen->token = best == ~0ull ? -2 : -1;
        return;
    }
    if (choice.reported >= 0) {
        row.mask = nullptr;
        row.highest = logits[token_of(best)];
        report(row, choice.reported, chosen, shared);
        row.mask = mask;
    }
    int token = threadIdx.x == 0 ? token_of(best_allowed) : -1;
    if (choice.temperature != 0.0f) {
        row.highest = logits[token_of(best_allowed)];
        row.temperature = choice.temperature;
        const unsigned least = __float_as_uint(choice.min_p);
        const unsigned floor = least > UNIT_BITS ? least : UNIT_BITS;
        // All.
        Cut kept = {floor - 1, 0, 0};
        if (choice.top_k > 0) kept = cut(row, floor, false, choice.top_k, 0, shared);
        if (choice.top_p < 1ull << 32) kept = cut(row, floor, true, choice.top_p, kept.total, shared);
        if (kept.total == 0) {
            for (int i = threadIdx.x; i < p.vocabulary; i += blockDim.x) {
                const unsigned weight = weigh(row, i);
                if (weight >= floor) kept.total += units(weight);
            }
            kept.total = over_block<Sum>(kept.total, shared);
        }
        token = draw(row, kept, choice.random, shared);
    }
    if (token >= 0) {
        chosen->token = token;
        chosen->logit = logits[token];
    }
}
struct TakeParams {
    const Chosen *chosen;
    // Of each row the choice that gives its token; negative leaves it as it is.
    const int *sources;
    int *tokens;
    int rows;
};

// Tokens of a batch that were chosen on the device.
DEVICE void take(const TakeParams &p) {
    let_next_begin();
    wait_for_last();
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= p.rows || p.sources[row] < 0) return;
    // Nobody asks what follows a token that could not be chosen; it must be one all the same.
    const int token = p.chosen[p.sources[row]].token;
    p.tokens[row] = token < 0 ? 0 : token;
}

} // namespace choosing

KERNEL(choose_rows, choosing::ChooseParams, choosing::choose)
KERNEL(take_tokens, choosing::TakeParams, choosing::take)
