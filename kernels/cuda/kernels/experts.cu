// Mixture of experts: which experts compute a row, their products, and the sum of what they give. What
// one expert gives one row is a part; part `row * chosen + rank` is that of a row's `rank`th best.
#include "products.cuh"

struct RouteParams {
    const float *logits;
    // Selection bias, a number for each expert, or null.
    const float *correction;
    // Expert and share of each part.
    int *experts;
    float *shares;
    int count;
    int chosen;
    // Scores are sigmoids rather than a softmax.
    int sigmoid;
    // Shares of a row are divided by their sum.
    int normalised;
    float scale;
};

// The experts of a row, best first, equals by number: a warp for each row. Every part gets a number
// below `count`, whatever the logits are. Dynamic shared memory: `2 * count` floats and `chosen` ints.
DEVICE void route(const RouteParams &p) {
    let_next_begin();
    wait_for_last();
    const int lane = threadIdx.x;
    const float *logits = p.logits + (size_t)blockIdx.x * p.count;
    float *scores = (float *)shared_memory;
    float *ranks = scores + p.count;
    int *picked = (int *)(ranks + p.count);
    float highest = LOWEST;
    for (int e = lane; e < p.count; e += WARP) highest = fmaxf(highest, logits[e]);
    highest = warp_max(highest);
    float sum = 0.0f;
    for (int e = lane; e < p.count; e += WARP) {
        scores[e] = p.sigmoid ? 1.0f / (1.0f + expf(-logits[e])) : expf(logits[e] - highest);
        sum += scores[e];
    }
    const float whole = p.sigmoid ? 1.0f : warp_sum(sum);
    for (int e = lane; e < p.count; e += WARP) {
        scores[e] /= whole;
        const float rank = scores[e] + (p.correction != nullptr ? p.correction[e] : 0.0f);
        ranks[e] = rank == rank ? rank : LOWEST;
    }
    __syncthreads();
    float total = 0.0f;
    for (int k = 0; k < p.chosen; k++) {
        float best = LOWEST;
        int expert = -1;
        for (int e = lane; e < p.count; e += WARP) {
            // What was taken is no number.
            const float rank = ranks[e];
            if (rank == rank && (expert < 0 || rank > best)) {
                best = rank;
                expert = e;
            }
        }
        for (int mask = 16; mask > 0; mask >>= 1) {
            const float other = __shfl_xor_sync(WHOLE_WARP, best, mask);
            const int other_expert = __shfl_xor_sync(WHOLE_WARP, expert, mask);
            if (other_expert >= 0 && (expert < 0 || other > best ||
                                      (other == best && other_expert < expert))) {
                best = other;
                expert = other_expert;
            }
        }
        total += scores[expert];
        if (lane == 0) {
            picked[k] = expert;
            ranks[expert] = __uint_as_float(0x7fc00000u);
        }
        __syncthreads();
    }
    // Sigmoids can all be zero.
    const float divisor = p.normalised ? fmaxf(total, 1e-20f) : 1.0f;
    for (int k = lane; k < p.chosen; k += WARP) {
        const size_t part = (size_t)blockIdx.x * p.chosen + k;
        p.experts[part] = picked[k];
        p.shares[part] = scores[picked[k]] / divisor * p.scale;
    }
}
KERNEL(route_rows, RouteParams, route)

struct GroupParams {
    // Expert of each part.
    const int *experts;
    // Parts, those of one expert side by side.
    int *order;
    // Expert, first place in `order` and number of places of each tile; 0 places where there is none.
    int *tiles;
    int parts;
    int count;
    // Places of a tile at most, and room for tiles.
    int tile;
    int tiles_max;
};

// Inclusive prefix sum over the lanes.
DEVICE int sum_so_far(int value) {
    const int lane = threadIdx.x % WARP;
    for (int distance = 1; distance < (int)WARP; distance *= 2) {
        const int before = __shfl_sync(WHOLE_WARP, value, (lane - distance) & 31);
        if (lane >= distance) value += before;
    }
    return value;
}

// Parts by expert, in tiles that products can take. The order of an expert's parts is any: no part's
// result depends on it. One block. Dynamic shared memory: `count` ints.
DEVICE void group(const GroupParams &p) {
    let_next_begin();
    wait_for_last();
    // Parts of each expert, then the next free place of each.
    unsigned *places = (unsigned *)shared_memory;
    for (int e = threadIdx.x; e < p.count; e += blockDim.x) places[e] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < p.parts; i += blockDim.x) atomicAdd(&places[p.experts[i]], 1u);
    __syncthreads();
    if (threadIdx.x < WARP) {
        const int lane = threadIdx.x;
        int placed = 0, tiled = 0;
        for (int from = 0; from < p.count; from += WARP) {
            const int expert = from + lane;
            const int parts = expert < p.count ? (int)places[expert] : 0;
            const int tiles = (parts + p.tile - 1) / p.tile;
            const int parts_so_far = sum_so_far(parts), tiles_so_far = sum_so_far(tiles);
            const int first = placed + parts_so_far - parts;
            for (int t = 0; t < tiles; t++) {
                int *tile = p.tiles + 3 * (tiled + tiles_so_far - tiles + t);
                const int left = parts - t * p.tile;
                tile[0] = expert;
                tile[1] = first + t * p.tile;
                tile[2] = left < p.tile ? left : p.tile;
            }
            if (expert < p.count) places[expert] = first;
            placed += __shfl_sync(WHOLE_WARP, parts_so_far, WARP - 1);
            tiled += __shfl_sync(WHOLE_WARP, tiles_so_far, WARP - 1);
        }
        for (int t = tiled + lane; t < p.tiles_max; t += WARP) p.tiles[3 * t + 2] = 0;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < p.parts; i += blockDim.x)
        p.order[atomicAdd(&places[p.experts[i]], 1u)] = i;
}
WIDE_KERNEL(group_parts, GroupParams, group)

struct ExpertProductParams {
    // Experts one below the other.
    Matrix matrix;
    const float *x;
    // A number for each output of each expert, or null.
    const float *bias;
    float *out;
    const int *order;
    const int *tiles;
    // Of an expert.
    int outputs;
    // Parts that share a row of `x`.
    int shared_by;
};

// Parts of one expert.
struct ExpertJob {
    const ExpertProductParams &p;
    const Matrix &matrix;
    int first;
    int outputs;
    int rows;
    const int *parts;

    DEVICE const float *input(int row) const {
        return p.x + (size_t)(parts[row] / p.shared_by) * matrix.columns;
    }
    DEVICE void finish(int row, int output, float sum) const {
        if (p.bias != nullptr) sum += p.bias[first + output];
        p.out[(size_t)parts[row] * outputs + output] = sum;
    }
};

DEVICE ExpertJob expert_job(const ExpertProductParams &p, const int *tile) {
    return {p, p.matrix, tile[0] * p.outputs, p.outputs, tile[2], p.order + tile[1]};
}

// Tiles of up to `M` parts. Tiles along y.
template <class F, int M> DEVICE void experts_few(const ExpertProductParams &p) {
    let_next_begin();
    wait_for_last();
    const int *tile = p.tiles + 3 * blockIdx.y;
    if (tile[2] > 0) few_products<F, M>(expert_job(p, tile));
}

// Tiles of up to 64 parts.
template <class F> DEVICE void experts_many(const ExpertProductParams &p) {
    let_next_begin();
    wait_for_last();
    const int *tile = p.tiles + 3 * blockIdx.y;
    if (tile[2] > 0) Many<F>::products(expert_job(p, tile));
}

#define EXPERTS(name, Format)                                                                      \
    KERNEL(experts_##name##_1, ExpertProductParams, (experts_few<Format, 1>))                      \
    KERNEL(experts_##name##_2, ExpertProductParams, (experts_few<Format, 2>))                      \
    KERNEL(experts_##name##_4, ExpertProductParams, (experts_few<Format, 4>))                      \
    KERNEL(experts_##name##_8, ExpertProductParams, (experts_few<Format, 8>))                      \
    KERNEL(experts_##name##_many, ExpertProductParams, (experts_many<Format>))
FOR_EACH_FORMAT(EXPERTS)

struct CombineParams {
    // What each part gave, and its share.
    const float *parts;
    const float *shares;
    // What an expert for all rows gave, or null, and the number whose sigmoid is its share in each
    // row, or null for a share of 1.
    const float *common;
    const float *common_gates;
    float *out;
    int chosen;
    int width;
    int accumulate;
    float scale;
};

// The sum of a row's parts, best first: `out = [out +] scale * sum`. Rows along x, numbers along y.
DEVICE void combine(const CombineParams &p) {
    let_next_begin();
    wait_for_last();
    const int i = blockIdx.y * blockDim.x + threadIdx.x;
    if (i >= p.width) return;
    const size_t row = blockIdx.x;
    float sum = 0.0f;
    for (int k = 0; k < p.chosen; k++) {
        const size_t part = row * p.chosen + k;
        sum += p.shares[part] * p.parts[part * p.width + i];
    }
    if (p.common != nullptr) {
        const float gate = p.common_gates != nullptr ? p.common_gates[row] : 0.0f;
        const float share = p.common_gates != nullptr ? 1.0f / (1.0f + expf(-gate)) : 1.0f;
        sum += share * p.common[row * p.width + i];
    }
    float *out = p.out + row * p.width + i;
    *out = p.scale * sum + (p.accumulate ? *out : 0.0f);
}
KERNEL(combine_rows, CombineParams, combine)
