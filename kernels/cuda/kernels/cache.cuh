// How a block of the cache keeps the keys, or the values, of a head. For each way:
//
//   bytes(dim)                     bytes of 16 tokens of `dim` numbers
//   token(head, slot, dim)         one of them, whose numbers `[]` gives
//   write(head, slot, dim, values) by a warp, from numbers that all its lanes see
#pragma once

#include "device.cuh"

template <class Kv> struct Plain {
    typedef typename Kv::Stored Stored;
    struct Token {
        const Stored *numbers;
        DEVICE float operator[](int d) const { return Kv::load(numbers[d]); }
    };
    static DEVICE size_t bytes(int dim) { return (size_t)BLOCK_TOKENS * dim * sizeof(Stored); }
    static DEVICE Token token(const unsigned char *head, int slot, int dim) {
        return {(const Stored *)head + slot * dim};
    }
    static DEVICE void write(unsigned char *head, int slot, int dim, const float *values) {
        Stored *to = (Stored *)head + slot * dim;
        for (int d = threadIdx.x % WARP; d < dim; d += WARP) to[d] = Kv::store(values[d]);
    }
};

// Eight bits each, and behind the numbers of all tokens a scale in f16 for each 32 of a token's: the
// numbers and scales that the host's cache has.
struct Q8 {
    struct Token {
        const signed char *numbers;
        const unsigned short *scales;
        DEVICE float operator[](int d) const {
            return (float)numbers[d] * f16_to_f32(scales[d / WARP]);
        }
    };
    static DEVICE int groups(int dim) { return (dim + WARP - 1) / WARP; }
    static DEVICE size_t bytes(int dim) {
        return (size_t)BLOCK_TOKENS * (dim + groups(dim) * sizeof(unsigned short));
    }
    static DEVICE Token token(const unsigned char *head, int slot, int dim) {
        const unsigned short *scales = (const unsigned short *)(head + BLOCK_TOKENS * dim);
        return {(const signed char *)head + slot * dim, scales + slot * groups(dim)};
    }
    static DEVICE void write(unsigned char *head, int slot, int dim, const float *values) {
        signed char *numbers = (signed char *)head + slot * dim;
        unsigned short *scales = (unsigned short *)(head + BLOCK_TOKENS * dim) + slot * groups(dim);
        const int lane = threadIdx.x % WARP;
        for (int group = 0; group < groups(dim); group++) {
            const int d = group * WARP + lane;
            const float value = d < dim ? values[d] : 0.0f;
            const float largest = warp_max(fabsf(value));
            unsigned short bits = f32_to_f16(fminf(largest / 127.0f, 65504.0f));
            // Rounded down, the scale could cut off the largest number.
            if (f16_to_f32(bits) * 127.0f < largest && bits < 0x7bff) bits++;
            const float scale = f16_to_f32(bits);
            const float steps = scale == 0.0f ? 0.0f : roundf(value / scale);
            if (d < dim) numbers[d] = (signed char)fminf(fmaxf(steps, -127.0f), 127.0f);
            if (lane == 0) scales[group] = bits;
        }
    }
};

#define FOR_EACH_KEPT(instance)                                                                    \
    instance(f32, Plain<KvF32>) instance(f16, Plain<KvF16>) instance(bf16, Plain<KvBf16>)          \
    instance(q8_0, Q8)
