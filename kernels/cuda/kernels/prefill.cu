// Attention of consecutive rows of one sequence together: tiles of up to 64.
#include "attention.cuh"

// Rows of a tile; without tensor cores, those of a block, and threads that share one of them.
constexpr int TILE_ROWS = 64;
constexpr int EXACT_ROWS = 16;
constexpr int ROW_THREADS = 8;
// Numbers of a head at most.
constexpr int DIM_MAX = 256;

// Up to 16 rows and one head a block, 128 threads, nothing rounded. Heads along x, tiles along y, rows
// of a tile along z. Dynamic shared memory: `(16 + 32) * (dim + 1) + 16 * 33 + 3 * 16` floats.
template <class Kept> DEVICE void exact_prefill(const AttentionParams &p) {
    let_next_begin();
    wait_for_last();
    const int head = blockIdx.x, kv_head = head / (p.heads / p.kv_heads);
    const int begin = blockIdx.z * EXACT_ROWS, left = p.tiles[2 * blockIdx.y + 1] - begin;
    const int first_row = p.tiles[2 * blockIdx.y] + begin, rows = left < EXACT_ROWS ? left : EXACT_ROWS;
    if (rows <= 0) return;
    const int dim = p.dim, stride = dim + 1;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    const int *table = p.blocks + p.tables[first_row];
    const int first_position = p.positions[first_row];
    const int end = first_position + rows;

    float *queries = (float *)shared_memory;
    float *cached = queries + EXACT_ROWS * stride;
    float *weights = cached + TOKENS * stride;
    float *highest = weights + EXACT_ROWS * (TOKENS + 1);
    float *total = highest + EXACT_ROWS;
    float *shrink = total + EXACT_ROWS;

    for (int r = warp; r < EXACT_ROWS; r += warps) {
        const float *query = p.queries + (size_t)(first_row + r) * p.stride + (size_t)head * dim;
        for (int d = lane; d < dim; d += WARP) queries[r * stride + d] = r < rows ? query[d] : 0.0f;
        if (lane == 0) {
            highest[r] = LOWEST;
            total[r] = 0.0f;
        }
    }
    const int row = threadIdx.x / ROW_THREADS, column = threadIdx.x % ROW_THREADS;
    float sums[DIM_MAX / ROW_THREADS];
#pragma unroll
    for (int i = 0; i < DIM_MAX / ROW_THREADS; i++) sums[i] = 0.0f;
    // Keys, then values, of 32 tokens; what lies beyond the end is 0.
    auto fetch = [&](const void *cache, int tile) {
        for (int t = warp; t < TOKENS; t += warps) {
            const int token = tile + t < end ? tile + t : end - 1;
            const auto from = token_of<Kept>(p, cache, table, token, kv_head);
            for (int d = lane; d < dim; d += WARP)
                cached[t * stride + d] = tile + t < end ? from[d] : 0.0f;
        }
    };
    for (int tile = first_seen(p, first_position) / TOKENS * TOKENS; tile < end; tile += TOKENS) {
        __syncthreads();
        fetch(p.keys, tile);
        __syncthreads();
        float scores[TOKENS / ROW_THREADS] = {0.0f, 0.0f, 0.0f, 0.0f};
        for (int d = 0; d < dim; d++) {
            const float query = queries[row * stride + d];
#pragma unroll
            for (int i = 0; i < TOKENS / ROW_THREADS; i++)
                scores[i] =
                    fmaf(query, cached[(column + i * ROW_THREADS) * stride + d], scores[i]);
        }
        const int position = first_position + row, first = first_seen(p, position);
#pragma unroll
        for (int i = 0; i < TOKENS / ROW_THREADS; i++) {
            const int t = column + i * ROW_THREADS;
            const bool seen = tile + t >= first && tile + t <= position;
            weights[row * (TOKENS + 1) + t] =
                seen ? soft_capped(scores[i] * p.scale, p.soft_cap) : LOWEST;
        }
        __syncthreads();
        fetch(p.values, tile);
        for (int r = warp; r < EXACT_ROWS; r += warps) {
            const float score = weights[r * (TOKENS + 1) + lane];
            const float before = highest[r];
            const float now = fmaxf(before, warp_max(score));
            const float weight = score > LOWEST ? expf(score - now) : 0.0f;
            const float sum = warp_sum(weight);
            weights[r * (TOKENS + 1) + lane] = weight;
            if (lane == 0) {
                highest[r] = now;
                shrink[r] = expf(before - now);
                total[r] = fmaf(total[r], shrink[r], sum);
            }
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < DIM_MAX / ROW_THREADS; i++) sums[i] *= shrink[row];
        for (int t = 0; t < TOKENS; t++) {
            const float weight = weights[row * (TOKENS + 1) + t];
#pragma unroll
            for (int i = 0; i < DIM_MAX / ROW_THREADS; i++) {
                const int d = column + i * ROW_THREADS;
                if (d < dim) sums[i] = fmaf(weight, cached[t * stride + d], sums[i]);
            }
        }
    }
    if (row >= rows) return;
    float most = highest[row], all = total[row], factor = 1.0f;
    if (p.sinks != nullptr) {
        const float with_sink = fmaxf(most, p.sinks[head]);
        factor = expf(most - with_sink);
        all = fmaf(all, factor, expf(p.sinks[head] - with_sink));
    }
    float *out = p.out + ((size_t)(first_row + row) * p.heads + head) * dim;
#pragma unroll
    for (int i = 0; i < DIM_MAX / ROW_THREADS; i++) {
        const int d = column + i * ROW_THREADS;
        if (d < dim) out[d] = sums[i] * factor / all;
    }
}
KERNEL(prefill_attention_f32, AttentionParams, exact_prefill<Plain<KvF32>>)

// As what keys and values are multiplied by tensor cores.
template <class Kept> struct HalfOfKept {
    typedef KvF16 Half;
};
template <> struct HalfOfKept<Plain<KvBf16>> {
    typedef KvBf16 Half;
};

// The same by tensor cores: up to 64 rows and one head a block, 128 threads, of which each warp has 16
// rows. Queries, keys, values and weights are rounded to 16 bits, sums are in f32. Heads of up to `DIM`
// numbers. Heads along x, tiles along y. Dynamic shared memory: `(64 + 32) * (DIM + 8) + DIM * 34`
// numbers of 16 bits.
template <class Kept, int DIM> DEVICE void core_prefill(const AttentionParams &p) {
    typedef typename HalfOfKept<Kept>::Half Half;
    constexpr int STRIDE = DIM + 8, TURNED_STRIDE = TOKENS + 2;
    let_next_begin();
    wait_for_last();
    const int head = blockIdx.x, kv_head = head / (p.heads / p.kv_heads);
    const int first_row = p.tiles[2 * blockIdx.y], rows = p.tiles[2 * blockIdx.y + 1];
    const int dim = p.dim;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    const int *table = p.blocks + p.tables[first_row];
    const int first_position = p.positions[first_row];
    const int end = first_position + rows;

    const Tile<STRIDE> queries = {(unsigned short *)shared_memory};
    const Tile<STRIDE> keys = {queries.numbers + TILE_ROWS * STRIDE};
    // A row for each number of a head, a column for each token.
    const Tile<TURNED_STRIDE> values = {keys.numbers + TOKENS * STRIDE};
    for (int r = warp; r < TILE_ROWS; r += warps) {
        const float *query = p.queries + (size_t)(first_row + r) * p.stride + (size_t)head * dim;
        for (int d = lane; d < DIM; d += WARP)
            queries.numbers[r * STRIDE + d] = r < rows && d < dim ? Half::store(query[d]) : 0;
    }
    const int own_row = warp * 16;
    // Of rows `lane / 4` and 8 more; of numbers or tokens, `2 * (lane % 4)` and its neighbour of each 8.
    float highest[2] = {LOWEST, LOWEST}, total[2] = {0.0f, 0.0f};
    float sums[DIM / 8][4];
#pragma unroll
    for (int i = 0; i < DIM / 2; i++) sums[i / 4][i % 4] = 0.0f;
    for (int tile = first_seen(p, first_position) / TOKENS * TOKENS; tile < end; tile += TOKENS) {
        __syncthreads();
        for (int t = warp; t < TOKENS; t += warps) {
            const bool inside = tile + t < end;
            const int token = inside ? tile + t : end - 1;
            const auto key = token_of<Kept>(p, p.keys, table, token, kv_head);
            const auto value = token_of<Kept>(p, p.values, table, token, kv_head);
            for (int d = lane; d < DIM; d += WARP) {
                const bool given = inside && d < dim;
                keys.numbers[t * STRIDE + d] = given ? Half::store(key[d]) : 0;
                values.numbers[d * TURNED_STRIDE + t] = given ? Half::store(value[d]) : 0;
            }
        }
        __syncthreads();
        // Rows that are not there, and tokens after all of the warp's rows.
        if (own_row >= rows || tile > first_position + own_row + 15) continue;
        float scores[TOKENS / 8][4];
#pragma unroll
        for (int i = 0; i < TOKENS / 2; i++) scores[i / 4][i % 4] = 0.0f;
        for (int d = 0; d < dim; d += 16) {
            unsigned a[4], b[2];
            queries.left(own_row, d, a);
#pragma unroll
            for (int n = 0; n < TOKENS / 8; n++) {
                keys.right(8 * n, d, b);
                Half::multiply(scores[n], a, b);
            }
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int position = first_position + own_row + lane / 4 + 8 * i;
            const int first = first_seen(p, position);
            float most = highest[i], sum = 0.0f;
#pragma unroll
            for (int n = 0; n < TOKENS / 4; n++) {
                const int token = tile + n / 2 * 8 + lane % 4 * 2 + n % 2;
                float &score = scores[n / 2][2 * i + n % 2];
                const bool seen = token >= first && token <= position;
                score = seen ? soft_capped(score * p.scale, p.soft_cap) : LOWEST;
                most = fmaxf(most, score);
            }
            most = fmaxf(most, __shfl_xor_sync(WHOLE_WARP, most, 1));
            most = fmaxf(most, __shfl_xor_sync(WHOLE_WARP, most, 2));
#pragma unroll
            for (int n = 0; n < TOKENS / 4; n++) {
                float &score = scores[n / 2][2 * i + n % 2];
                score = score > LOWEST ? expf(score - most) : 0.0f;
                sum += score;
            }
            sum += __shfl_xor_sync(WHOLE_WARP, sum, 1);
            sum += __shfl_xor_sync(WHOLE_WARP, sum, 2);
            const float shrink = expf(highest[i] - most);
            highest[i] = most;
            total[i] = fmaf(total[i], shrink, sum);
#pragma unroll
            for (int n = 0; n < DIM / 4; n++) sums[n / 2][2 * i + n % 2] *= shrink;
        }
#pragma unroll
        for (int t = 0; t < TOKENS; t += 16) {
            // Sums of 8 tokens lie where a left factor has them.
            const float(&low)[4] = scores[t / 8], (&high)[4] = scores[t / 8 + 1];
            const unsigned a[4] = {pack<Half>(low[0], low[1]), pack<Half>(low[2], low[3]),
                                   pack<Half>(high[0], high[1]), pack<Half>(high[2], high[3])};
#pragma unroll
            for (int n = 0; n < DIM / 8; n++) {
                unsigned b[2];
                values.right(8 * n, t, b);
                Half::multiply(sums[n], a, b);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int row = own_row + lane / 4 + 8 * i;
        if (row >= rows) continue;
        float all = total[i], factor = 1.0f;
        if (p.sinks != nullptr) {
            const float with_sink = fmaxf(highest[i], p.sinks[head]);
            factor = expf(highest[i] - with_sink);
            all = fmaf(all, factor, expf(p.sinks[head] - with_sink));
        }
        float *out = p.out + ((size_t)(first_row + row) * p.heads + head) * dim;
#pragma unroll
        for (int n = 0; n < DIM / 4; n++) {
            const int d = n / 2 * 8 + lane % 4 * 2 + n % 2;
            if (d < dim) out[d] = sums[n / 2][2 * i + n % 2] * factor / all;
        }
    }
}
#define CORE_PREFILL(name, Kept)                                                                   \
    KERNEL(prefill_attention_##name##_64, AttentionParams, (core_prefill<Kept, 64>))               \
    KERNEL(prefill_attention_##name##_128, AttentionParams, (core_prefill<Kept, 128>))             \
    KERNEL(prefill_attention_##name##_256, AttentionParams, (core_prefill<Kept, 256>))
CORE_PREFILL(f16, Plain<KvF16>)
CORE_PREFILL(bf16, Plain<KvBf16>)
CORE_PREFILL(q8_0, Q8)
