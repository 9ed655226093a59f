// Sampling with the same bits as the sampler of the host: adjustments, mask, temperature, top-k, min-p,
// top-p and the draw.
#include "weigh.cuh"

namespace sampling {

constexpr int REPORTED_MAX = 20;
// A search looks at so many bits at once; those of a weight, less the unit's, are no more than three
// times as many.
constexpr int DIGIT = 10;
constexpr int BINS = 1 << DIGIT;
constexpr unsigned WARPS_MAX = 32;

// Bias and penalties of one token.
struct Adjustment {
    int token;
    float bias;
    float repetition;
    float penalty;
};

struct SampleParams {
    u64 random;
    // In units of 2^-32.
    u64 top_p;
    // 0 is greedy.
    float temperature;
    float min_p;
    // 0 keeps all.
    unsigned top_k;
    int row;
    int first_adjustment;
    int adjustments;
    // Number of the mask; negative is none.
    int mask;
    // Number of top logprobs; negative computes none.
    int reported;
};

struct SampledToken {
    // Sum of all weights at temperature 1 before the mask, and the highest logit then.
    u64 total;
    float highest;
    // Of the token.
    float logit;
    // -1 where no allowed token has weight, -2 where a logit is NaN or infinity.
    int token;
    int padding;
    int likeliest[REPORTED_MAX];
    float logits[REPORTED_MAX];
};

struct SampleRowsParams {
    float *logits;
    const SampleParams *params;
    const Adjustment *adjustments;
    // Bits of the allowed tokens, `words` for each mask.
    const unsigned *masks;
    SampledToken *sampled;
    int vocabulary;
    int words;
};

// Shared memory of a block. Its size is known to `sample.rs`.
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
static_assert(sizeof(Shared) == 12696 && sizeof(SampleParams) == 48 && sizeof(SampledToken) == 184,
              "as on the host");

// Logprobs: the most likely tokens before the mask.
DEVICE void report(const Weighed &row, int count, SampledToken *sampled, Shared &shared) {
    u64 total = 0;
    for (int i = threadIdx.x; i < row.vocabulary; i += blockDim.x) total += units(weigh(row, i));
    total = over_block<Sum>(total, shared.by_warp);
    if (threadIdx.x == 0) {
        sampled->total = total;
        sampled->highest = row.highest;
    }
    u64 below = ~0ull, mine = 0;
    bool stale = true;
    for (int place = 0; place < count; place++) {
        // The thread whose token was taken finds its next one.
        if (stale) {
            mine = 0;
            for (int i = threadIdx.x; i < row.vocabulary; i += blockDim.x) {
                const u64 own = rank(row.logits[i], i);
                if (own < below) mine = Most::of(mine, own);
            }
        }
        const u64 most = over_block<Most>(mine, shared.by_warp);
        stale = mine == most;
        below = most;
        if (threadIdx.x == 0) {
            sampled->likeliest[place] = most == 0 ? -1 : token_of(most);
            sampled->logits[place] = most == 0 ? 0.0f : row.logits[token_of(most)];
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

// A block of at most 1024 threads for each sample. Dynamic shared memory: a `Shared`.
DEVICE void sample_row(const SampleRowsParams &p) {
    let_next_begin();
    wait_for_last();
    Shared &shared = *(Shared *)shared_memory;
    const SampleParams params = p.params[blockIdx.x];
    SampledToken *sampled = p.sampled + blockIdx.x;
    float *logits = p.logits + (size_t)params.row * p.vocabulary;
    for (int i = threadIdx.x; i < params.adjustments; i += blockDim.x) {
        const Adjustment adjustment = p.adjustments[params.first_adjustment + i];
        const float biased = __fadd_rn(logits[adjustment.token], adjustment.bias);
        const float repeated = biased > 0.0f ? __fdiv_rn(biased, adjustment.repetition)
                                             : __fmul_rn(biased, adjustment.repetition);
        logits[adjustment.token] = __fsub_rn(repeated, adjustment.penalty);
    }
    __syncthreads();
    Weighed row = {logits, nullptr, p.vocabulary, p.words, 0.0f, 1.0f};
    const unsigned *mask =
        params.mask < 0 ? nullptr : p.masks + (size_t)params.mask * p.words;
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
    best = over_block<Most>(numbers ? best : ~0ull, shared.by_warp);
    best_allowed = over_block<Most>(best_allowed, shared.by_warp);
    if (best == ~0ull || best_allowed == 0) {
        if (threadIdx.x == 0) sampled->token = best == ~0ull ? -2 : -1;
        return;
    }
    if (params.reported >= 0) {
        row.mask = nullptr;
        row.highest = logits[token_of(best)];
        report(row, params.reported, sampled, shared);
        row.mask = mask;
    }
    int token = threadIdx.x == 0 ? token_of(best_allowed) : -1;
    if (params.temperature != 0.0f) {
        row.highest = logits[token_of(best_allowed)];
        row.temperature = params.temperature;
        const unsigned least = __float_as_uint(params.min_p);
        const unsigned floor = least > UNIT_BITS ? least : UNIT_BITS;
        // All.
        Cut kept = {floor - 1, 0, 0};
        if (params.top_k > 0) kept = cut(row, floor, false, params.top_k, 0, shared);
        if (params.top_p < 1ull << 32) kept = cut(row, floor, true, params.top_p, kept.total, shared);
        if (kept.total == 0) {
            for (int i = threadIdx.x; i < p.vocabulary; i += blockDim.x) {
                const unsigned weight = weigh(row, i);
                if (weight >= floor) kept.total += units(weight);
            }
            kept.total = over_block<Sum>(kept.total, shared.by_warp);
        }
        token = draw(row, kept, params.random, shared);
    }
    if (token >= 0) {
        sampled->token = token;
        sampled->logit = logits[token];
    }
}

struct TakeParams {
    const SampledToken *sampled;
    // Sample that gives the token of each row; negative keeps the token.
    const int *sources;
    int *tokens;
    int rows;
};

// Copies tokens that were sampled on the device into a batch.
DEVICE void take(const TakeParams &p) {
    let_next_begin();
    wait_for_last();
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= p.rows || p.sources[row] < 0) return;
    // A sample without a token ends its sequence; the batch needs a valid token all the same.
    const int token = p.sampled[p.sources[row]].token;
    p.tokens[row] = token < 0 ? 0 : token;
}

} // namespace sampling

WIDE_KERNEL(sample_rows, sampling::SampleRowsParams, sampling::sample_row)
KERNEL(take_tokens, sampling::TakeParams, sampling::take)
