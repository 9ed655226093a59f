// Products of rows of activations with a matrix: `out = [out +] scale * (x * transpose(w) + bias)`.
#include "weights.cuh"

struct LinearParams {
    Matrix matrix;
    const float *x;
    // One number an output, or null.
    const float *bias;
    float *out;
    // Floats from one row to the next.
    int x_stride;
    int out_stride;
    // Rows of `x` and `out`.
    int rows;
    int accumulate;
    float scale;
};

// Outputs of a block of `linear_few`.
constexpr int FEW_OUTPUTS = 4;

DEVICE void finish(const LinearParams &p, int row, int output, float sum) {
    float *out = p.out + (size_t)row * p.out_stride + output;
    if (p.bias != nullptr) sum += p.bias[output];
    *out = p.scale * sum + (p.accumulate ? *out : 0.0f);
}

// The sums over a warp of each of `N` numbers that every lane brings: lane `l` gets that of number
// `l / (32 / N)`. Lanes are added in the same order whatever `N` is.
template <int N> DEVICE float warp_sums(float (&values)[N]) {
    int half = N / 2;
#pragma unroll
    for (int mask = 16; mask > 0; mask >>= 1) {
        bool upper = (threadIdx.x & mask) != 0;
        if (half == 0) {
            values[0] += __shfl_xor_sync(WHOLE_WARP, values[0], mask);
        } else {
#pragma unroll
            for (int i = 0; i < N / 2; i++) {
                if (i >= half) break;
                float kept = upper ? values[i + half] : values[i];
                float given = upper ? values[i] : values[i + half];
                values[i] = kept + __shfl_xor_sync(WHOLE_WARP, given, mask);
            }
            half /= 2;
        }
    }
    return values[0];
}

// Up to `M` rows: every weight is read once, by one thread, and the threads of a block share the
// columns of four outputs. The bits of a row do not depend on `M` nor on the rows beside it. Dynamic
// shared memory: `4 * M` floats a warp.
template <class F, int M> DEVICE void linear_few(const LinearParams &p) {
    let_next_begin();
    const int first = blockIdx.x * FEW_OUTPUTS;
    const int pieces = p.matrix.columns / F::WEIGHTS;
    int piece = threadIdx.x;
    // Weights do not depend on the kernel before this one.
    typename F::Raw raw[FEW_OUTPUTS];
    auto load = [&](int at) {
#pragma unroll
        for (int o = 0; o < FEW_OUTPUTS; o++) {
            int output = first + o < p.matrix.rows ? first + o : p.matrix.rows - 1;
            raw[o] = F::load(p.matrix, output, at);
        }
    };
    if (piece < pieces) load(piece);
    wait_for_last();
    const float *x[M];
#pragma unroll
    for (int m = 0; m < M; m++) x[m] = p.x + (size_t)(m < p.rows ? m : p.rows - 1) * p.x_stride;
    float sums[FEW_OUTPUTS * M];
#pragma unroll
    for (int i = 0; i < FEW_OUTPUTS * M; i++) sums[i] = 0.0f;
    while (piece < pieces) {
        // The next weights are on their way while these are multiplied.
        typename F::Raw now[FEW_OUTPUTS];
#pragma unroll
        for (int o = 0; o < FEW_OUTPUTS; o++) now[o] = raw[o];
        const int at = piece;
        piece += blockDim.x;
        if (piece < pieces) load(piece);
#pragma unroll
        for (int j = 0; j < F::WEIGHTS; j += 4) {
            float w[FEW_OUTPUTS][4];
#pragma unroll
            for (int o = 0; o < FEW_OUTPUTS; o++) F::unpack(now[o], j, w[o]);
            const int column = F::place(at, j);
#pragma unroll
            for (int m = 0; m < M; m++) {
                const float4 four = *(const float4 *)(x[m] + column);
#pragma unroll
                for (int o = 0; o < FEW_OUTPUTS; o++) {
                    float sum = sums[m * FEW_OUTPUTS + o];
                    sum = fmaf(w[o][0], four.x, sum);
                    sum = fmaf(w[o][1], four.y, sum);
                    sum = fmaf(w[o][2], four.z, sum);
                    sums[m * FEW_OUTPUTS + o] = fmaf(w[o][3], four.w, sum);
                }
            }
        }
    }
    constexpr int SUMS = FEW_OUTPUTS * M;
    float *of_warps = (float *)shared_memory;
    const unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    float sum = warp_sums(sums);
    if (lane % (WARP / SUMS) == 0) of_warps[warp * SUMS + lane / (WARP / SUMS)] = sum;
    __syncthreads();
    if (threadIdx.x < SUMS) {
        float total = 0.0f;
        for (unsigned w = 0; w < blockDim.x / WARP; w++) total += of_warps[w * SUMS + threadIdx.x];
        const int row = threadIdx.x / FEW_OUTPUTS, output = first + threadIdx.x % FEW_OUTPUTS;
        if (row < p.rows && output < p.matrix.rows) finish(p, row, output, total);
    }
}

// Rows and outputs of a tile of `linear_many`, and columns that it takes at once.
constexpr int TILE = 32;
constexpr int TILE_COLUMNS = 64;
constexpr int TILE_STRIDE = TILE_COLUMNS + 1;

// Any number of rows, without tensor cores: what computes where cuBLASLt is not there or does not
// know the format. 256 threads for 32 rows of 32 outputs. Dynamic shared memory: `2 * 32 * 65`
// floats.
template <class F> DEVICE void linear_many(const LinearParams &p) {
    let_next_begin();
    wait_for_last();
    float *weights = (float *)shared_memory;
    float *inputs = weights + TILE * TILE_STRIDE;
    const int first_output = blockIdx.x * TILE, first_row = blockIdx.y * TILE;
    const int pieces = p.matrix.columns / F::WEIGHTS;
    constexpr int TILE_PIECES = TILE_COLUMNS / F::WEIGHTS;
    // Each thread sums two rows and two outputs, 16 apart.
    const int a = threadIdx.x / 16, b = threadIdx.x % 16;
    float sums[2][2] = {{0.0f, 0.0f}, {0.0f, 0.0f}};
    for (int column = 0; column < p.matrix.columns; column += TILE_COLUMNS) {
        for (int i = threadIdx.x; i < TILE * TILE_PIECES; i += blockDim.x) {
            const int output = first_output + i / TILE_PIECES;
            const int piece = column / F::WEIGHTS + i % TILE_PIECES;
            const bool inside = output < p.matrix.rows && piece < pieces;
            typename F::Raw raw;
            if (inside) raw = F::load(p.matrix, output, piece);
#pragma unroll
            for (int j = 0; j < F::WEIGHTS; j += 4) {
                float w[4] = {0.0f, 0.0f, 0.0f, 0.0f};
                if (inside) F::unpack(raw, j, w);
                float *to = weights + i / TILE_PIECES * TILE_STRIDE + F::place(piece, j) - column;
                for (int k = 0; k < 4; k++) to[k] = w[k];
            }
        }
        for (int i = threadIdx.x; i < TILE * TILE_COLUMNS; i += blockDim.x) {
            const int row = first_row + i / TILE_COLUMNS, k = column + i % TILE_COLUMNS;
            const bool inside = row < p.rows && k < p.matrix.columns;
            inputs[i / TILE_COLUMNS * TILE_STRIDE + i % TILE_COLUMNS] =
                inside ? p.x[(size_t)row * p.x_stride + k] : 0.0f;
        }
        __syncthreads();
        for (int k = 0; k < TILE_COLUMNS; k++) {
            for (int r = 0; r < 2; r++)
                for (int o = 0; o < 2; o++)
                    sums[r][o] = fmaf(weights[(b + 16 * o) * TILE_STRIDE + k],
                                      inputs[(a + 16 * r) * TILE_STRIDE + k], sums[r][o]);
        }
        __syncthreads();
    }
    for (int r = 0; r < 2; r++)
        for (int o = 0; o < 2; o++) {
            const int row = first_row + a + 16 * r, output = first_output + b + 16 * o;
            if (row < p.rows && output < p.matrix.rows) finish(p, row, output, sums[r][o]);
        }
}

#define LINEAR(name, Format)                                                                       \
    KERNEL(linear_##name##_1, LinearParams, (linear_few<Format, 1>))                               \
    KERNEL(linear_##name##_2, LinearParams, (linear_few<Format, 2>))                               \
    KERNEL(linear_##name##_4, LinearParams, (linear_few<Format, 4>))                               \
    KERNEL(linear_##name##_8, LinearParams, (linear_few<Format, 8>))                               \
    KERNEL(linear_##name##_many, LinearParams, (linear_many<Format>))
FOR_EACH_FORMAT(LINEAR)

// What stands before and after a product by cuBLASLt.

struct NarrowParams {
    const float *x;
    unsigned short *out;
    unsigned long long length;
};

// Activations in the numbers that the matrix has.
template <class Kv> DEVICE void narrow(const NarrowParams &p) {
    let_next_begin();
    wait_for_last();
    const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
         i < p.length; i += step)
        p.out[i] = Kv::store(p.x[i]);
}
KERNEL(narrow_bf16, NarrowParams, narrow<KvBf16>)
KERNEL(narrow_f16, NarrowParams, narrow<KvF16>)

struct WidenParams {
    Matrix matrix;
    unsigned short *out;
};

// A quantised matrix in bf16: a block for each row.
template <class F> DEVICE void widen(const WidenParams &p) {
    let_next_begin();
    wait_for_last();
    const int pieces = p.matrix.columns / F::WEIGHTS;
    unsigned short *out = p.out + (size_t)blockIdx.x * p.matrix.columns;
    for (int piece = threadIdx.x; piece < pieces; piece += blockDim.x) {
        typename F::Raw raw = F::load(p.matrix, blockIdx.x, piece);
#pragma unroll
        for (int j = 0; j < F::WEIGHTS; j += 4) {
            float w[4];
            F::unpack(raw, j, w);
            for (int k = 0; k < 4; k++) out[F::place(piece, j) + k] = f32_to_bf16(w[k]);
        }
    }
}
#define WIDEN(name, Format) KERNEL(widen_##name, WidenParams, widen<Format>)
FOR_EACH_FORMAT(WIDEN)

struct AddBiasParams {
    const float *bias;
    float *out;
    int outputs;
    int out_stride;
    float scale;
};

// `out += scale * bias`, a block for each row.
DEVICE void add_bias(const AddBiasParams &p) {
    let_next_begin();
    wait_for_last();
    float *out = p.out + (size_t)blockIdx.x * p.out_stride;
    for (int i = threadIdx.x; i < p.outputs; i += blockDim.x)
        out[i] = fmaf(p.scale, p.bias[i], out[i]);
}
KERNEL(add_bias_rows, AddBiasParams, add_bias)
