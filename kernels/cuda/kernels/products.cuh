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

// Rows and outputs of a tile of `many_products`, and columns that it takes at once.
constexpr int TILE = 32;
constexpr int TILE_COLUMNS = 64;
constexpr int TILE_STRIDE = TILE_COLUMNS + 1;

// A tile of rows, without tensor cores: up to 32 rows of 32 outputs by 256 threads. Outputs along x.
// Dynamic shared memory: `2 * 32 * 65` floats.
template <class F, class Job> DEVICE void many_products(const Job &job) {
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
            const int row = i / TILE_COLUMNS, k = column + i % TILE_COLUMNS;
            inputs[row * TILE_STRIDE + i % TILE_COLUMNS] =
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
            const int row = a + 16 * r, output = first_output + b + 16 * o;
            if (row < job.rows && output < job.outputs) job.finish(row, output, sums[r][o]);
        }
}
