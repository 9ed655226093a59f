// Products of rows of activations with a matrix: `out = [out +] scale * (x * transpose(w) + bias)`.
#include "products.cuh"

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

// Rows of `x` from one on, with all of the matrix.
struct LinearJob {
    const LinearParams &p;
    const Matrix &matrix;
    int first;
    int outputs;
    int rows;
    int first_row;

    DEVICE const float *input(int row) const {
        return p.x + (size_t)(first_row + row) * p.x_stride;
    }
    DEVICE void finish(int row, int output, float sum) const {
        float *out = p.out + (size_t)(first_row + row) * p.out_stride + output;
        if (p.bias != nullptr) sum += p.bias[output];
        *out = p.scale * sum + (p.accumulate ? *out : 0.0f);
    }
};

DEVICE LinearJob linear_job(const LinearParams &p, int first_row) {
    return {p, p.matrix, 0, p.matrix.rows, p.rows - first_row, first_row};
}

// Up to `M` rows.
template <class F, int M> DEVICE void linear_few(const LinearParams &p) {
    let_next_begin();
    few_products<F, M>(linear_job(p, 0));
}

// Any number of rows: what computes where cuBLASLt is not there. Tiles of rows along y.
template <class F> DEVICE void linear_many(const LinearParams &p) {
    let_next_begin();
    wait_for_last();
    Many<F>::products(linear_job(p, blockIdx.y * MANY_ROWS));
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
FOR_EACH_QUANTISED(WIDEN)

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
