// What kernels are written with. Beside plain C++ they use only the names below, so that a C++
// compiler and `emulator/include/emulated.h` can run them on a machine without a GPU:
//
//   threadIdx.x, blockDim.x, blockIdx, gridDim     __global__, __device__, __restrict__
//   __syncthreads, __shfl_xor_sync, __shfl_sync    atomicAdd on unsigned numbers, __threadfence
//   uint2, uint4, float4, make_float4              expf, tanhf, rsqrtf, fmaf, fminf, fmaxf, fabsf, roundf
//   __fadd_rn, __fsub_rn, __fmul_rn, __fdiv_rn     __umul64hi
//   __uint_as_float, __float_as_uint               dynamic shared memory, as `shared_memory`
//   multiply_f16, multiply_bf16                    f16_to_f32, f32_to_f16
//
// Rules that the emulator holds them to: blocks are whole warps; shuffles involve whole warps; every
// thread of a block reaches every barrier, so none returns before the last one; what is read as a
// `uint4` or a `float4` lies at a multiple of 16 bytes; grids and blocks are as large as GPUs take.
#pragma once

#ifdef __CUDACC__

extern __shared__ __align__(16) unsigned char shared_memory[];

#define DEVICE __device__ __forceinline__
// A kernel by its unmangled name.
#define KERNEL(name, Params, body)                                                                 \
    extern "C" __global__ void name(const __grid_constant__ Params params) { body(params); }
// One that is launched with more than 256 threads a block: the compiler, a driver's too, must leave
// registers for as many as there can be.
#define WIDE_KERNEL(name, Params, body)                                                            \
    extern "C" __global__ void __launch_bounds__(1024)                                             \
        name(const __grid_constant__ Params params) {                                              \
        body(params);                                                                              \
    }

// Half precision without NVIDIA's headers, which need more of a toolkit.
DEVICE float f16_to_f32(unsigned short bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

DEVICE unsigned short f32_to_f16(float value) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

// The tensor cores: to 16 by 8 sums the products of 16 by 16 numbers and 16 by 8. Each lane has some
// of each; which, PTX says of `mma.m16n8k16`.
#define MULTIPLY(name, type)                                                                       \
    DEVICE void name(float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {           \
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 "                \
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"             \
                     : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])                  \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));          \
    }
MULTIPLY(multiply_f16, "f16")
MULTIPLY(multiply_bf16, "bf16")

// Let the next kernel's blocks take their places, and wait until the results of the last one can be
// read (programmatic dependent launch). Both do nothing where kernels are launched without it.
DEVICE void let_next_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

DEVICE void wait_for_last() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

#else

#include "emulated.h"

#endif

constexpr unsigned WARP = 32;
constexpr unsigned WHOLE_WARP = 0xffffffffu;
// Tokens of a block of the cache of keys and values; the host's `BLOCK_TOKENS`.
constexpr int BLOCK_TOKENS = 16;
// Below all scores.
constexpr float LOWEST = -3.402823466e38f;

DEVICE float bf16_to_f32(unsigned short bits) { return __uint_as_float((unsigned)bits << 16); }

// To the nearest, ties to even; what is no number stays none.
DEVICE unsigned short f32_to_bf16(float value) {
    unsigned bits = __float_as_uint(value);
    if (value != value) return (unsigned short)(bits >> 16 | 0x40);
    return (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Numbers of activations, keys and values. `Stored` is as what one lies in memory.
struct KvF32 {
    typedef float Stored;
    static DEVICE float load(float stored) { return stored; }
    static DEVICE float store(float value) { return value; }
};

struct KvF16 {
    typedef unsigned short Stored;
    static DEVICE float load(unsigned short stored) { return f16_to_f32(stored); }
    // What is beyond the range is cut to it, as on the host.
    static DEVICE unsigned short store(float value) {
        return f32_to_f16(fminf(fmaxf(value, -65504.0f), 65504.0f));
    }
    static DEVICE void multiply(float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
        multiply_f16(sums, a, b);
    }
};

struct KvBf16 {
    typedef unsigned short Stored;
    static DEVICE float load(unsigned short stored) { return bf16_to_f32(stored); }
    static DEVICE unsigned short store(float value) { return f32_to_bf16(value); }
    static DEVICE void multiply(float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
        multiply_bf16(sums, a, b);
    }
};

// Two numbers of 16 bits in a word, the first in its lower half.
template <class Half> DEVICE unsigned pack(float first, float second) {
    return (unsigned)Half::store(first) | (unsigned)Half::store(second) << 16;
}

// A matrix of numbers of 16 bits in shared memory, for the tensor cores. `STRIDE` numbers from one row
// to the next, an even number.
template <int STRIDE> struct Tile {
    unsigned short *numbers;

    DEVICE unsigned pair(int row, int column) const {
        return *(const unsigned *)(numbers + row * STRIDE + column);
    }
    // What this lane has of 16 rows and 16 columns, the left factor.
    DEVICE void left(int row, int column, unsigned (&a)[4]) const {
        const int lane = threadIdx.x % WARP, r = row + lane / 4, c = column + lane % 4 * 2;
        a[0] = pair(r, c);
        a[1] = pair(r + 8, c);
        a[2] = pair(r, c + 8);
        a[3] = pair(r + 8, c + 8);
    }
    // And of 8 rows and 16 columns, the right factor, transposed.
    DEVICE void right(int row, int column, unsigned (&b)[2]) const {
        const int lane = threadIdx.x % WARP, r = row + lane / 4, c = column + lane % 4 * 2;
        b[0] = pair(r, c);
        b[1] = pair(r, c + 8);
    }
};

DEVICE float warp_sum(float value) {
    for (int mask = 16; mask > 0; mask >>= 1) value += __shfl_xor_sync(WHOLE_WARP, value, mask);
    return value;
}

DEVICE float warp_max(float value) {
    for (int mask = 16; mask > 0; mask >>= 1)
        value = fmaxf(value, __shfl_xor_sync(WHOLE_WARP, value, mask));
    return value;
}

// The sum of what all threads of the block bring, for all of them. `scratch` holds a float for each
// warp; it may be used again after the next barrier.
DEVICE float block_sum(float value, float *scratch) {
    value = warp_sum(value);
    if (threadIdx.x % WARP == 0) scratch[threadIdx.x / WARP] = value;
    __syncthreads();
    float sum = 0.0f;
    for (unsigned warp = 0; warp < blockDim.x / WARP; warp++) sum += scratch[warp];
    return sum;
}

// `cap * tanh(score / cap)`, or the score itself where the cap is 0.
DEVICE float soft_capped(float score, float cap) {
    return cap > 0.0f ? cap * tanhf(score / cap) : score;
}
