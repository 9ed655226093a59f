// Products of a few or of many rows of activations with rows of a matrix. A `Job` says which:
//
//   matrix, first        the matrix, and its row that gives output 0
//   outputs, rows        outputs, and rows of activations
//   input(row)           where a row of activations begins
//   finish(row, o, sum)  what becomes of a sum
#pragma once

#include "weights.cuh"

// Outputs of a block of `few_products`.
constexpr int FEW_OUTPUTS = 4;

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
// columns of four outputs. The bits of a row do not depend on `M` nor on the rows beside it. Outputs
// along x. Dynamic shared memory: `4 * M` floats a warp.
template <class F, int M, class Job> DEVICE void few_products(const Job &job) {
    const int first = blockIdx.x * FEW_OUTPUTS;
    const int pieces = job.matrix.columns / F::WEIGHTS;
    int piece = threadIdx.x;
    // Weights do not depend on the kernel before this one.
    typename F::Raw raw[FEW_OUTPUTS];
    auto load = [&](int at) {
#pragma unroll
        for (int o = 0; o < FEW_OUTPUTS; o++) {
            int output = first + o < job.outputs ? first + o : job.outputs - 1;
            raw[o] = F::load(job.matrix, job.first + output, at);
        }
    };
    if (piece < pieces) load(piece);
    wait_for_last();
    const float *x[M];
#pragma unroll
    for (int m = 0; m < M; m++) x[m] = job.input(m < job.rows ? m : job.rows - 1);
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
        if (row < job.rows && output < job.outputs) job.finish(row, output, total);
    }
}

// Rows of a tile where there are many.
constexpr int MANY_ROWS = 64;
// Of numbers in f32: rows and outputs that are computed at once, and columns.
constexpr int TILE = 32;
constexpr int TILE_COLUMNS = 64;
constexpr int TILE_STRIDE = TILE_COLUMNS + 1;

// Up to 32 rows of 32 outputs from row `first_row` on, without tensor cores.
template <class F, class Job> DEVICE void exact_products(const Job &job, int first_row) {
    float *weights = (float *)shared_memory;
    float *inputs = weights + TILE * TILE_STRIDE;
    const int first_output = blockIdx.x * TILE;
    const int columns = job.matrix.columns, pieces = columns / F::WEIGHTS;
    constexpr int TILE_PIECES = TILE_COLUMNS / F::WEIGHTS;
    // Each thread sums two rows and two outputs, 16 apart.
    const int a = threadIdx.x / 16, b = threadIdx.x % 16;
    float sums[2][2] = {{0.0f, 0.0f}, {0.0f, 0.0f}};
    for (int column = 0; column < columns; column += TILE_COLUMNS) {
        for (int i = threadIdx.x; i < TILE * TILE_PIECES; i += blockDim.x) {
            const int output = first_output + i / TILE_PIECES;
            const int piece = column / F::WEIGHTS + i % TILE_PIECES;
            const bool inside = output < job.outputs && piece < pieces;
            typename F::Raw raw;
            if (inside) raw = F::load(job.matrix, job.first + output, piece);
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
            inputs[i / TILE_COLUMNS * TILE_STRIDE + i % TILE_COLUMNS] =
                row < job.rows && k < columns ? job.input(row)[k] : 0.0f;
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
            if (row < job.rows && output < job.outputs) job.finish(row, output, sums[r][o]);
        }
}

// The same by tensor cores: outputs, columns, and numbers of 16 bits from one row to the next.
constexpr int CORE_OUTPUTS = 64;
constexpr int CORE_COLUMNS = 64;
constexpr int CORE_STRIDE = CORE_COLUMNS + 8;

// As what a format is multiplied by tensor cores.
template <class F> struct HalfOf {
    typedef KvBf16 Half;
};
template <> struct HalfOf<F16> {
    typedef KvF16 Half;
};

// A piece, in numbers of 16 bits, with column 0 at `to`.
template <class F> DEVICE void put_piece(const typename F::Raw &raw, int piece, unsigned short *to) {
#pragma unroll
    for (int j = 0; j < F::WEIGHTS; j += 4) {
        float w[4];
        F::unpack(raw, j, w);
        unsigned *words = (unsigned *)(to + F::place(piece, j));
        words[0] = pack<typename HalfOf<F>::Half>(w[0], w[1]);
        words[1] = pack<typename HalfOf<F>::Half>(w[2], w[3]);
    }
}
// What has 16 bits stays as it is.
template <> DEVICE void put_piece<Bf16>(const uint4 &raw, int piece, unsigned short *to) {
    *(uint4 *)(to + Bf16::place(piece, 0)) = raw;
}
template <> DEVICE void put_piece<F16>(const uint4 &raw, int piece, unsigned short *to) {
    *(uint4 *)(to + F16::place(piece, 0)) = raw;
}

// Up to 64 rows of 64 outputs. Weights and activations are rounded to 16 bits, sums are in f32. Each
// warp has 16 rows and 32 outputs.
template <class F, class Job> DEVICE void core_products(const Job &job) {
    typedef typename HalfOf<F>::Half Half;
    const Tile<CORE_STRIDE> weights = {(unsigned short *)shared_memory};
    const Tile<CORE_STRIDE> inputs = {weights.numbers + CORE_OUTPUTS * CORE_STRIDE};
    const int first_output = blockIdx.x * CORE_OUTPUTS;
    const int columns = job.matrix.columns, pieces = columns / F::WEIGHTS;
    constexpr int TILE_PIECES = CORE_COLUMNS / F::WEIGHTS, FOURS = CORE_COLUMNS / 4;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int own_row = warp % 4 * 16, own_output = warp / 4 * 32;
    float sums[4][4];
    for (int i = 0; i < 16; i++) sums[i / 4][i % 4] = 0.0f;
    for (int column = 0; column < columns; column += CORE_COLUMNS) {
        for (int i = threadIdx.x; i < CORE_OUTPUTS * TILE_PIECES; i += blockDim.x) {
            const int output = first_output + i / TILE_PIECES;
            const int piece = column / F::WEIGHTS + i % TILE_PIECES;
            unsigned short *to = weights.numbers + i / TILE_PIECES * CORE_STRIDE;
            if (output < job.outputs && piece < pieces) {
                put_piece<F>(F::load(job.matrix, job.first + output, piece), piece, to - column);
            } else {
                for (int j = 0; j < F::WEIGHTS; j += 4) {
                    unsigned *words = (unsigned *)(to + F::place(piece, j) - column);
                    words[0] = words[1] = 0;
                }
            }
        }
        for (int i = threadIdx.x; i < MANY_ROWS * FOURS; i += blockDim.x) {
            const int row = i / FOURS, k = column + i % FOURS * 4;
            const bool inside = row < job.rows && k < columns;
            const float4 four = inside ? *(const float4 *)(job.input(row) + k)
                                       : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            unsigned *words = (unsigned *)(inputs.numbers + row * CORE_STRIDE + i % FOURS * 4);
            words[0] = pack<Half>(four.x, four.y);
            words[1] = pack<Half>(four.z, four.w);
        }
        __syncthreads();
        if (own_row < job.rows) {
#pragma unroll
            for (int k = 0; k < CORE_COLUMNS; k += 16) {
                unsigned a[4], b[2];
                inputs.left(own_row, k, a);
#pragma unroll
                for (int n = 0; n < 4; n++) {
                    weights.right(own_output + 8 * n, k, b);
                    Half::multiply(sums[n], a, b);
                }
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int row = own_row + lane / 4 + i / 2 * 8;
            const int output = first_output + own_output + 8 * n + lane % 4 * 2 + i % 2;
            if (row < job.rows && output < job.outputs) job.finish(row, output, sums[n][i]);
        }
}

// A tile of up to 64 rows, by 256 threads. Outputs along x: 32 of a matrix in f32, whose products are
// not rounded, else 64. Dynamic shared memory: `2 * 32 * 65` floats or `2 * 64 * 72` numbers of 16 bits.
template <class F> struct Many {
    template <class Job> static DEVICE void products(const Job &job) { core_products<F>(job); }
};
template <> struct Many<F32> {
    template <class Job> static DEVICE void products(const Job &job) {
        for (int row = 0; row < MANY_ROWS && row < job.rows; row += TILE)
            exact_products<F32>(job, row);
    }
};
