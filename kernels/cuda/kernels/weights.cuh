// How matrices are stored, and how they are read. A row is a sequence of pieces of 16 bytes, each of
// which one thread reads at once; beside some lie scales. For each format:
//
//   WEIGHTS            weights of a piece
//   Raw                a piece as it is loaded, with its scales
//   load(m, row, i)    piece `i` of a row
//   unpack(raw, j, w)  its weights j to j + 3, j a multiple of 4
//   place(i, j)        the column of weight `j` of piece `i`; four from there on are neighbours
//
// The columns of a row are a multiple of `COLUMNS`.
#pragma once

#include "device.cuh"

struct Matrix {
    const uint4 *pieces;
    // f16 for Q8_0, bytes of exponents for MXFP4, f32 for FP8; else unused.
    const void *scales;
    int rows;
    int columns;
};

template <class F> DEVICE size_t piece_index(const Matrix &m, int row, int piece) {
    return (size_t)row * (m.columns / F::WEIGHTS) + piece;
}

// A piece of neighbours.
template <int N> struct Neighbours {
    static constexpr int WEIGHTS = N;
    static DEVICE int place(int piece, int j) { return piece * N + j; }
};

DEVICE unsigned word(const uint4 &raw, int index) {
    return index == 0 ? raw.x : index == 1 ? raw.y : index == 2 ? raw.z : raw.w;
}

struct F32 : Neighbours<4> {
    static constexpr int COLUMNS = 4;
    typedef uint4 Raw;
    static DEVICE Raw load(const Matrix &m, int row, int piece) {
        return m.pieces[piece_index<F32>(m, row, piece)];
    }
    static DEVICE void unpack(const Raw &raw, int, float (&w)[4]) {
        w[0] = __uint_as_float(raw.x);
        w[1] = __uint_as_float(raw.y);
        w[2] = __uint_as_float(raw.z);
        w[3] = __uint_as_float(raw.w);
    }
};

struct Bf16 : Neighbours<8> {
    static constexpr int COLUMNS = 8;
    typedef uint4 Raw;
    static DEVICE Raw load(const Matrix &m, int row, int piece) {
        return m.pieces[piece_index<Bf16>(m, row, piece)];
    }
    static DEVICE void unpack(const Raw &raw, int j, float (&w)[4]) {
        for (int pair = 0; pair < 2; pair++) {
            unsigned both = word(raw, j / 2 + pair);
            w[2 * pair] = __uint_as_float(both << 16);
            w[2 * pair + 1] = __uint_as_float(both & 0xffff0000u);
        }
    }
};

struct F16 : Neighbours<8> {
    static constexpr int COLUMNS = 8;
    typedef uint4 Raw;
    static DEVICE Raw load(const Matrix &m, int row, int piece) {
        return m.pieces[piece_index<F16>(m, row, piece)];
    }
    static DEVICE void unpack(const Raw &raw, int j, float (&w)[4]) {
        for (int pair = 0; pair < 2; pair++) {
            unsigned both = word(raw, j / 2 + pair);
            w[2 * pair] = f16_to_f32((unsigned short)both);
            w[2 * pair + 1] = f16_to_f32((unsigned short)(both >> 16));
        }
    }
};

// GGUF's Q8_0, numbers and scales apart: a scale for each 32 numbers.
struct Q8_0 : Neighbours<16> {
    static constexpr int COLUMNS = 32;
    struct Raw {
        uint4 numbers;
        float scale;
    };
    static DEVICE Raw load(const Matrix &m, int row, int piece) {
        size_t index = piece_index<Q8_0>(m, row, piece);
        const unsigned short *scales = (const unsigned short *)m.scales;
        return {m.pieces[index], f16_to_f32(scales[index / 2])};
    }
    static DEVICE void unpack(const Raw &raw, int j, float (&w)[4]) {
        unsigned four = word(raw.numbers, j / 4);
        for (int i = 0; i < 4; i++)
            w[i] = raw.scale * (float)((int)(four << (24 - 8 * i)) >> 24);
    }
};

// GGUF's Q4_K as it lies in files: of 144 bytes for 256 weights, the first 16 are a scale and a
// minimum in f16 and eight pairs of 6 bits that multiply them, a pair for each 32 weights. In the
// other 128, low halves of bytes belong to the first 32 of 64 weights and high halves to the others.
struct Q4K {
    static constexpr int WEIGHTS = 32;
    static constexpr int COLUMNS = 256;
    struct Raw {
        uint4 numbers;
        // Of the weights in low halves, and of those in high halves.
        float scale[2];
        float minimum[2];
    };
    static DEVICE int place(int piece, int j) {
        return piece / 2 * 64 + piece % 2 * 16 + j + (j < 16 ? 0 : 16);
    }
    static DEVICE Raw load(const Matrix &m, int row, int piece) {
        const uint4 *block =
            m.pieces + ((size_t)row * (m.columns / COLUMNS) + piece / 8) * 9;
        const uint4 head = block[0];
        Raw raw;
        raw.numbers = block[1 + piece % 8];
        float scale = f16_to_f32((unsigned short)head.x);
        float minimum = f16_to_f32((unsigned short)(head.x >> 16));
        int pair = piece % 8 / 2;
        for (int half = 0; half < 2; half++) {
            int part = 2 * pair + half;
            // Bytes 0 to 3 and 4 to 7 are scales and minima 0 to 3 with 6 bits each; their upper two
            // bits belong to those of 4 to 7, whose lower four are the halves of bytes 8 to 11.
            int shift = part % 4 * 8;
            unsigned a = head.y >> shift & 0xff, b = head.z >> shift & 0xff;
            unsigned low = head.w >> shift & 0xff;
            unsigned scale6 = part < 4 ? a & 63 : (low & 15) | a >> 6 << 4;
            unsigned minimum6 = part < 4 ? b & 63 : low >> 4 | b >> 6 << 4;
            raw.scale[half] = scale * (float)scale6;
            raw.minimum[half] = minimum * (float)minimum6;
        }
        return raw;
    }
    static DEVICE void unpack(const Raw &raw, int j, float (&w)[4]) {
        int half = j / 16;
        unsigned four = word(raw.numbers, j % 16 / 4) >> (4 * half);
        for (int i = 0; i < 4; i++)
            w[i] = fmaf(raw.scale[half], (float)(four >> (8 * i) & 15), -raw.minimum[half]);
    }
};

// Eight bits with four of exponent (OCP FP8, e4m3, finite): a scale for each 128 of a row, and for
// what is left of it.
struct Fp8 : Neighbours<16> {
    static constexpr int COLUMNS = 16;
    static constexpr int SCALED = 128;
    struct Raw {
        uint4 numbers;
        float scale;
    };
    static DEVICE Raw load(const Matrix &m, int row, int piece) {
        const size_t scales = (m.columns + SCALED - 1) / SCALED;
        const float scale = ((const float *)m.scales)[row * scales + piece * WEIGHTS / SCALED];
        // Below the number is read as one of half precision, whose exponents are 8 less.
        return {m.pieces[piece_index<Fp8>(m, row, piece)], scale * 256.0f};
    }
    static DEVICE void unpack(const Raw &raw, int j, float (&w)[4]) {
        unsigned four = word(raw.numbers, j / 4);
        for (int i = 0; i < 4; i++) {
            unsigned bits = four >> (8 * i) & 0xff;
            unsigned short half = (unsigned short)((bits & 0x80) << 8 | (bits & 0x7f) << 7);
            w[i] = raw.scale * f16_to_f32(half);
        }
    }
};

// OCP MXFP4: numbers of four bits, e2m1, and a power of two for each 32. In a piece, low halves of
// bytes are the first 16 weights and high halves the others, as in GGUF files; exponents lie apart.
struct Mxfp4 : Neighbours<32> {
    static constexpr int COLUMNS = 32;
    struct Raw {
        uint4 numbers;
        float scale;
    };
    static DEVICE Raw load(const Matrix &m, int row, int piece) {
        size_t index = piece_index<Mxfp4>(m, row, piece);
        unsigned exponent = ((const unsigned char *)m.scales)[index];
        // 2 to the power of `exponent - 127`; the lowest is no normal number.
        float scale = __uint_as_float(exponent == 0 ? 0x00400000u : exponent << 23);
        return {m.pieces[index], scale};
    }
    static DEVICE void unpack(const Raw &raw, int j, float (&w)[4]) {
        unsigned four = word(raw.numbers, j % 16 / 4) >> (j < 16 ? 0 : 4);
        for (int i = 0; i < 4; i++) {
            unsigned bits = four >> (8 * i) & 15;
            // As a number of half precision, whose exponents are 14 less.
            unsigned short half = (unsigned short)((bits & 8) << 12 | (bits & 7) << 9);
            w[i] = raw.scale * (16384.0f * f16_to_f32(half));
        }
    }
};

#define FOR_EACH_QUANTISED(instance)                                                               \
    instance(q8_0, Q8_0) instance(q4_k, Q4K) instance(fp8, Fp8) instance(mxfp4, Mxfp4)
#define FOR_EACH_FORMAT(instance)                                                                  \
    instance(f32, F32) instance(bf16, Bf16) instance(f16, F16) FOR_EACH_QUANTISED(instance)
