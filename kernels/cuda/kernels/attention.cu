// Keys and values on their way to the cache, and attention of rows that attend each by itself.
#include "attention.cuh"

struct FinishQkvParams {
    // Rows of queries, keys and values; queries are finished where they stand.
    float *qkv;
    // Norms of each head's queries and keys, or null.
    const float *query_norm;
    const float *key_norm;
    // Cosines and sines of each position, `turned / 2` of each, or null.
    const float *cosines;
    const float *sines;
    const int *positions;
    // Place of each row's token in the cache, counted in tokens; none if negative.
    const int *slots;
    void *keys;
    void *values;
    int stride;
    int heads;
    int kv_heads;
    int dim;
    int turned;
    // Neighbouring dimensions turn together rather than those half of them apart.
    int neighbours;
    float epsilon;
};

// Norms and positions of queries and keys; keys and values go into the cache. A warp for each head:
// rows along x, of which there may be many more than along y; queries, keys, values along y. Dynamic
// shared memory: `dim` floats.
template <class Kept> DEVICE void finish_qkv(const FinishQkvParams &p) {
    let_next_begin();
    wait_for_last();
    const int row = blockIdx.x, head = blockIdx.y, lane = threadIdx.x;
    float *in = p.qkv + (size_t)row * p.stride + (size_t)head * p.dim;
    float *values = (float *)shared_memory;
    const bool is_query = head < p.heads, is_value = head >= p.heads + p.kv_heads;
    float squares = 0.0f;
    for (int d = lane; d < p.dim; d += WARP) {
        values[d] = in[d];
        squares = fmaf(values[d], values[d], squares);
    }
    const float *norm = is_query ? p.query_norm : p.key_norm;
    if (norm != nullptr && !is_value) {
        const float factor = rsqrtf(warp_sum(squares) / p.dim + p.epsilon);
        for (int d = lane; d < p.dim; d += WARP) values[d] *= factor * norm[d];
    }
    __syncthreads();
    const int half = p.cosines != nullptr && !is_value ? p.turned / 2 : 0;
    const size_t angle = (size_t)(p.positions[row] < 0 ? 0 : p.positions[row]) * half;
    for (int pair = lane; pair < half; pair += WARP) {
        const int low = p.neighbours ? 2 * pair : pair;
        const int high = p.neighbours ? 2 * pair + 1 : pair + half;
        const float cosine = p.cosines[angle + pair], sine = p.sines[angle + pair];
        const float a = values[low], b = values[high];
        values[low] = a * cosine - b * sine;
        values[high] = b * cosine + a * sine;
    }
    __syncthreads();
    if (is_query) {
        for (int d = lane; d < p.dim; d += WARP) in[d] = values[d];
    } else if (p.slots[row] >= 0) {
        const int kv_head = (head - p.heads) % p.kv_heads;
        const size_t block = p.slots[row] / BLOCK_TOKENS;
        unsigned char *cache = (unsigned char *)(is_value ? p.values : p.keys);
        unsigned char *to = cache + (block * p.kv_heads + kv_head) * Kept::bytes(p.dim);
        Kept::write(to, p.slots[row] % BLOCK_TOKENS, p.dim, values);
    }
}
#define FINISH_QKV(name, Kept) KERNEL(finish_qkv_##name, FinishQkvParams, finish_qkv<Kept>)
FOR_EACH_KEPT(FINISH_QKV)

DEVICE void write_out(const AttentionParams &p, int row, int head, const float *sums, float highest,
                      float total) {
    float shrink = 1.0f;
    if (p.sinks != nullptr) {
        const float with_sink = fmaxf(highest, p.sinks[head]);
        shrink = expf(highest - with_sink);
        total = fmaf(total, shrink, expf(p.sinks[head] - with_sink));
    }
    float *out = p.out + ((size_t)row * p.heads + head) * p.dim;
    for (int d = threadIdx.x; d < p.dim; d += blockDim.x) out[d] = sums[d] * shrink / total;
}

// The splits of a row, merged by the block that comes last.
DEVICE void merge_splits(const AttentionParams &p, int row, int kv_head, int first, int last,
                         float *sums) {
    const int group = p.heads / p.kv_heads, room = p.dim + 2;
    for (int g = 0; g < group; g++) {
        const int head = kv_head * group + g;
        // What other blocks wrote is not in the first cache of this one.
        const volatile float *partials =
            p.partials + ((size_t)row * p.heads + head) * gridDim.z * room;
        float highest = LOWEST, total = 0.0f;
        for (int split = first; split <= last; split++)
            highest = fmaxf(highest, partials[split * room]);
        for (int split = first; split <= last; split++)
            total += partials[split * room + 1] * expf(partials[split * room] - highest);
        for (int d = threadIdx.x; d < p.dim; d += blockDim.x) {
            float sum = 0.0f;
            for (int split = first; split <= last; split++)
                sum += partials[split * room + 2 + d] * expf(partials[split * room] - highest);
            sums[d] = sum;
        }
        // Each thread reads of `sums` what it wrote.
        write_out(p, row, head, sums, highest, total);
    }
}

// Rows that attend each by itself: the query heads of one head of keys share what is read. 128
// threads; heads of keys along x, rows along y, splits of the tokens along z. Dynamic shared memory:
// `2 * group * dim + 32 * (dim + 1) + 32 * group + 3 * group + 1` floats.
template <class Kept> DEVICE void decode_attention(const AttentionParams &p) {
    let_next_begin();
    wait_for_last();
    const int kv_head = blockIdx.x, row = blockIdx.y, split = blockIdx.z;
    const int position = p.positions[row];
    const int first = first_seen(p, position);
    const int first_split = first / p.split_tokens, last_split = position / p.split_tokens;
    if (position < 0 || split < first_split || split > last_split) return;
    const int group = p.heads / p.kv_heads, dim = p.dim, key_stride = dim + 1;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    const int *table = p.blocks + p.tables[row];

    float *query = (float *)shared_memory;
    float *sums = query + group * dim;
    float *keys = sums + group * dim;
    float *weights = keys + TOKENS * key_stride;
    float *highest = weights + TOKENS * group;
    float *total = highest + group;
    float *shrink = total + group;
    unsigned *is_last = (unsigned *)(shrink + group);

    const float *queries = p.queries + (size_t)row * p.stride + (size_t)kv_head * group * dim;
    for (int i = threadIdx.x; i < group * dim; i += blockDim.x) {
        query[i] = queries[i];
        sums[i] = 0.0f;
    }
    for (int g = threadIdx.x; g < group; g += blockDim.x) {
        highest[g] = LOWEST;
        total[g] = 0.0f;
    }
    int begin = split * p.split_tokens;
    if (begin < first) begin = first / TOKENS * TOKENS;
    int end = (split + 1) * p.split_tokens;
    if (end > position + 1) end = position + 1;
    for (int tile = begin; tile < end; tile += TOKENS) {
        for (int t = warp; t < TOKENS; t += warps) {
            const int token = tile + t;
            const bool seen = token >= first && token < end;
            const auto key = token_of<Kept>(p, p.keys, table, seen ? token : first, kv_head);
            for (int d = lane; d < dim; d += WARP) keys[t * key_stride + d] = seen ? key[d] : 0.0f;
        }
        __syncthreads();
        for (int g = warp; g < group; g += warps) {
            float score = 0.0f;
            for (int d = 0; d < dim; d++)
                score = fmaf(query[g * dim + d], keys[lane * key_stride + d], score);
            const bool seen = tile + lane >= first && tile + lane < end;
            score = seen ? soft_capped(score * p.scale, p.soft_cap) : LOWEST;
            const float before = highest[g];
            const float now = fmaxf(before, warp_max(score));
            const float weight = seen ? expf(score - now) : 0.0f;
            const float sum = warp_sum(weight);
            weights[g * TOKENS + lane] = weight;
            if (lane == 0) {
                highest[g] = now;
                shrink[g] = expf(before - now);
                total[g] = fmaf(total[g], shrink[g], sum);
            }
        }
        __syncthreads();
        // Four heads at a time, so that a value is read once for them.
        for (int from = 0; from < group; from += 4) {
            const int heads = group - from < 4 ? group - from : 4;
            for (int d = threadIdx.x; d < dim; d += blockDim.x) {
                float four[4];
                for (int g = 0; g < 4; g++)
                    four[g] = g < heads ? sums[(from + g) * dim + d] * shrink[from + g] : 0.0f;
                const int tokens = end - tile < TOKENS ? end - tile : TOKENS;
                for (int t = tile < first ? first - tile : 0; t < tokens; t++) {
                    const float value = token_of<Kept>(p, p.values, table, tile + t, kv_head)[d];
                    for (int g = 0; g < 4; g++)
                        if (g < heads)
                            four[g] = fmaf(weights[(from + g) * TOKENS + t], value, four[g]);
                }
                for (int g = 0; g < 4; g++)
                    if (g < heads) sums[(from + g) * dim + d] = four[g];
            }
        }
        __syncthreads();
    }
    if (first_split == last_split) {
        for (int g = 0; g < group; g++)
            write_out(p, row, kv_head * group + g, sums + g * dim, highest[g], total[g]);
        return;
    }
    for (int g = 0; g < group; g++) {
        const size_t head = (size_t)row * p.heads + kv_head * group + g;
        float *partial = p.partials + (head * gridDim.z + split) * (dim + 2);
        if (threadIdx.x == 0) {
            partial[0] = highest[g];
            partial[1] = total[g];
        }
        for (int d = threadIdx.x; d < dim; d += blockDim.x) partial[2 + d] = sums[g * dim + d];
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned *ticket = p.tickets + (size_t)row * p.kv_heads + kv_head;
        *is_last = atomicAdd(ticket, 1u) == (unsigned)(last_split - first_split);
        if (*is_last) *ticket = 0;
    }
    __syncthreads();
    if (*is_last) {
        __threadfence();
        merge_splits(p, row, kv_head, first_split, last_split, sums);
    }
}
#define DECODE_ATTENTION(name, Kept)                                                               \
    KERNEL(decode_attention_##name, AttentionParams, decode_attention<Kept>)
FOR_EACH_KEPT(DECODE_ATTENTION)
