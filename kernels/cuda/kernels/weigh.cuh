// The weights of tokens as the host's sampler computes and counts them, and sums over a block.
//
// Weights are computed by the same operations in the same order (`kernels/src/exp.rs`), each rounded by
// itself, and summed as whole numbers, which no order of additions changes (`kernels/src/select.rs`).
#pragma once

#include "device.cuh"

namespace sampling {

typedef unsigned long long u64;

// Of the likeliest token's weight, 2^-40 is the unit.
constexpr float UNITS = 1099511627776.0f;
// The bits of 2^-40, which order weights as their values do.
constexpr unsigned UNIT_BITS = 0x2b800000;

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

// Reduction over the block, for all threads. `by_warp` has a number for each warp.
template <class Op> DEVICE u64 over_block(u64 value, u64 *by_warp) {
    value = over_warp<Op>(value);
    if (threadIdx.x % WARP == 0) by_warp[threadIdx.x / WARP] = value;
    __syncthreads();
    u64 all = by_warp[0];
    for (unsigned warp = 1; warp < blockDim.x / WARP; warp++) all = Op::of(all, by_warp[warp]);
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

} // namespace sampling
