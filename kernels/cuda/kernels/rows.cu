// What is done to each row by itself: the embedding of tokens, norms, gates.
#include "weights.cuh"

struct EmbedParams {
    Matrix matrix;
    const int *tokens;
    float *out;
    float scale;
};

// Rows of the matrix by token, a block for each.
template <class F> DEVICE void embed(const EmbedParams &p) {
    let_next_begin();
    wait_for_last();
    // A row without a sampled token has a negative one; its results are not used.
    const int token = p.tokens[blockIdx.x] < 0 ? 0 : p.tokens[blockIdx.x];
    const int pieces = p.matrix.columns / F::WEIGHTS;
    float *out = p.out + (size_t)blockIdx.x * p.matrix.columns;
    for (int piece = threadIdx.x; piece < pieces; piece += blockDim.x) {
        typename F::Raw raw = F::load(p.matrix, token, piece);
#pragma unroll
        for (int j = 0; j < F::WEIGHTS; j += 4) {
            float w[4];
            F::unpack(raw, j, w);
            for (int k = 0; k < 4; k++) out[F::place(piece, j) + k] = p.scale * w[k];
        }
    }
}
#define EMBED(name, Format) KERNEL(embed_##name, EmbedParams, embed<Format>)
FOR_EACH_FORMAT(EMBED)

struct RmsNormParams {
    const float *x;
    const float *weight;
    // Which row of `x` each row of `out` comes from; null is its own.
    const int *sources;
    float *out;
    int width;
    // Floats from one row to the next.
    int x_stride;
    int out_stride;
    int accumulate;
    float epsilon;
    float scale;
};

// `out = norm(x) * weight`, or `out += scale * norm(x) * weight`: a block for each row. Dynamic
// shared memory: a float a warp. `out` may be `x`.
DEVICE void rms_norm(const RmsNormParams &p) {
    let_next_begin();
    wait_for_last();
    const int source = p.sources != nullptr ? p.sources[blockIdx.x] : blockIdx.x;
    const float *x = p.x + (size_t)source * p.x_stride;
    float *out = p.out + (size_t)blockIdx.x * p.out_stride;
    float squares = 0.0f;
    for (int i = threadIdx.x; i < p.width; i += blockDim.x) squares = fmaf(x[i], x[i], squares);
    squares = block_sum(squares, (float *)shared_memory);
    const float factor = rsqrtf(squares / p.width + p.epsilon);
    for (int i = threadIdx.x; i < p.width; i += blockDim.x) {
        const float value = x[i] * factor * p.weight[i];
        out[i] = p.accumulate ? fmaf(p.scale, value, out[i]) : value;
    }
}
WIDE_KERNEL(rms_norm_rows, RmsNormParams, rms_norm)

struct GateMulParams {
    const float *gate_up;
    float *out;
    int width;
    // 0 is SiLU, 1 is GELU by a hyperbolic tangent, 2 is the clamped swish.
    int activation;
    float alpha;
    float limit;
};

// `activation(gate) * up`. Rows of `gate_up` hold `width` gates, then as many ups. Rows lie along x,
// of which there may be many more than along y; blocks of a row along y.
DEVICE void gate_mul(const GateMulParams &p) {
    let_next_begin();
    wait_for_last();
    const float *gates = p.gate_up + (size_t)blockIdx.x * 2 * p.width;
    float *out = p.out + (size_t)blockIdx.x * p.width;
    const int i = blockIdx.y * blockDim.x + threadIdx.x;
    if (i >= p.width) return;
    float gate = gates[i], up = gates[p.width + i];
    if (p.activation == 0) {
        out[i] = gate / (1.0f + expf(-gate)) * up;
    } else if (p.activation == 1) {
        const float inner = 0.7978845608f * (gate + 0.044715f * gate * gate * gate);
        out[i] = 0.5f * gate * (1.0f + tanhf(inner)) * up;
    } else {
        gate = fminf(gate, p.limit);
        up = fmaxf(fminf(up, p.limit), -p.limit);
        out[i] = (up + 1.0f) * (gate / (1.0f + expf(-p.alpha * gate)));
    }
}
KERNEL(gate_mul_rows, GateMulParams, gate_mul)

struct SoftCapParams {
    float *x;
    unsigned long long length;
    float cap;
};

DEVICE void soft_cap(const SoftCapParams &p) {
    let_next_begin();
    wait_for_last();
    const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
         i < p.length; i += step)
        p.x[i] = soft_capped(p.x[i], p.cap);
}
KERNEL(soft_cap_all, SoftCapParams, soft_cap)
