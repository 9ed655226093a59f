// CUDA's names for a C++ compiler. A block's threads are fibers that run one after the other until
// each waits at a barrier or a shuffle; blocks run one after the other. See `emulator.cpp`.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

struct Index {
    unsigned x, y, z;
};

struct uint2 {
    unsigned x, y;
};

struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

struct alignas(16) float4 {
    float x, y, z, w;
};

static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

// Of the fiber that runs.
extern Index threadIdx, blockIdx, blockDim, gridDim;
// Filled with what is no number before each block.
extern unsigned char shared_memory[];

namespace emulated {
// Waits until all threads of the block, or of the warp, are here.
void block_barrier();
void warp_barrier();
// Brings a value, waits for the warp, and gives that of another lane.
uint32_t exchange(uint32_t value, unsigned from_lane);
// Brings what a lane has of two factors, waits for the warp, and gives what all its lanes have.
constexpr unsigned FACTORS = 12;
typedef float Factors[FACTORS];
const Factors *exchange_factors(const Factors &mine);

typedef void (*Body)(const void *params);
// Makes a kernel known by its name, and whether it may be launched with many threads.
struct Kernel {
    Kernel(const char *name, size_t params_size, Body body, bool wide);
};

template <class To, class From> To bits_as(From from) {
    static_assert(sizeof(To) == sizeof(From), "numbers of one size");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
} // namespace emulated

#define DEVICE inline
#define __global__
#define __device__
#define __restrict__

#define NAMED_KERNEL(name, Params, body, wide)                                                     \
    static void run_##name(const void *params) { body(*(const Params *)params); }                  \
    static const emulated::Kernel known_##name(#name, sizeof(Params), run_##name, wide);
#define KERNEL(name, Params, body) NAMED_KERNEL(name, Params, body, false)
#define WIDE_KERNEL(name, Params, body) NAMED_KERNEL(name, Params, body, true)

static inline void __syncthreads() { emulated::block_barrier(); }
static inline void __threadfence() {}

static inline unsigned atomicAdd(unsigned *to, unsigned value) {
    unsigned before = *to;
    *to += value;
    return before;
}

static inline unsigned long long atomicAdd(unsigned long long *to, unsigned long long value) {
    unsigned long long before = *to;
    *to += value;
    return before;
}

static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}

// Each rounded by itself, which `-ffp-contract=off` sees to.
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }

static inline float __uint_as_float(unsigned bits) { return emulated::bits_as<float>(bits); }
static inline unsigned __float_as_uint(float value) { return emulated::bits_as<unsigned>(value); }
static inline float rsqrtf(float value) { return 1.0f / sqrtf(value); }

// The mask must be that of the whole warp.
template <class T> static inline T __shfl_sync(unsigned, T value, unsigned lane) {
    return emulated::bits_as<T>(emulated::exchange(emulated::bits_as<uint32_t>(value), lane));
}

template <class T> static inline T __shfl_xor_sync(unsigned mask, T value, unsigned other) {
    return __shfl_sync(mask, value, (threadIdx.x % 32) ^ other);
}

// IEEE 754 binary16, by its definition.
static inline float f16_to_f32(unsigned short bits) {
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    float value = exponent == 0    ? ldexpf((float)mantissa, -24)
                  : exponent == 31 ? (mantissa == 0 ? INFINITY : NAN)
                                   : ldexpf((float)(mantissa + 1024), exponent - 25);
    return bits >> 15 ? -value : value;
}

// To the nearest, ties to even.
static inline unsigned short f32_to_f16(float value) {
    const unsigned short sign = (unsigned short)(std::signbit(value) ? 0x8000 : 0);
    const float size = fabsf(value);
    if (size != size) return sign | 0x7e00;
    if (size >= 65520.0f) return sign | 0x7c00;
    if (size == 0.0f) return sign;
    int exponent;
    frexpf(size, &exponent);
    // Below the normal numbers all have the same distance.
    const int scale = exponent < -13 ? -24 : exponent - 11;
    const int mantissa = (int)nearbyintf(ldexpf(size, -scale));
    // A mantissa that was rounded up to the next power of two carries into the exponent.
    return sign | (unsigned short)(scale == -24 ? mantissa : ((scale + 25) << 10) + mantissa - 1024);
}

static inline float emulated_bf16(unsigned short bits) {
    return emulated::bits_as<float>((uint32_t)bits << 16);
}

// A lane has of the left factor, in 4 words, rows `lane / 4` and 8 more, columns `2 * (lane % 4)` and
// its neighbour, and those 8 more; of the right factor, in 2, the same rows and column `lane / 4`; of
// the sums those rows, and columns `2 * (lane % 4)` and its neighbour.
template <class Widen>
static inline void emulated_multiply(float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                                     Widen widen) {
    emulated::Factors mine;
    for (int i = 0; i < 6; i++) {
        const unsigned word = i < 4 ? a[i] : b[i - 4];
        mine[2 * i] = widen((unsigned short)word);
        mine[2 * i + 1] = widen((unsigned short)(word >> 16));
    }
    const emulated::Factors *all = emulated::exchange_factors(mine);
    const int lane = threadIdx.x % 32;
    for (int i = 0; i < 4; i++) {
        const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        for (int k = 0; k < 16; k++) {
            const int left = (k / 8 * 2 + row / 8) * 2 + k % 2, right = 8 + k / 8 * 2 + k % 2;
            sums[i] += all[row % 8 * 4 + k % 8 / 2][left] * all[column * 4 + k % 8 / 2][right];
        }
    }
}

static inline void multiply_f16(float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    emulated_multiply(sums, a, b, f16_to_f32);
}

static inline void multiply_bf16(float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    emulated_multiply(sums, a, b, emulated_bf16);
}

static inline void let_next_begin() {}
static inline void wait_for_last() {}
