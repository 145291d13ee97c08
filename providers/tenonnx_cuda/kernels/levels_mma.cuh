// Stored levels and activations as factors of a product on tensor cores.

struct __align__(16) sixteen { unsigned words[4]; };

// float32 is three bfloat16s, each what the ones before leave over, which makes three columns of
// a row of x; the stored levels are exact in either type.
template <class X> struct factors { typedef X type; static const int parts = 1; };
template <> struct factors<f32> { typedef bf16 type; static const int parts = 3; };
typedef factors<T>::type H;
#define PARTS (factors<T>::parts)

// A part of a float32, as the bits of a bfloat16.
__device__ inline unsigned part_of(float x, int part) {
#pragma unroll
    for (int p = 0; p < 2; ++p) {
        const float most = __uint_as_float(__float_as_uint(x) & 0xffff0000u);
        if (p < part) x = x == most ? 0.0f : x - most;  // not infinity less itself
    }
    return __float_as_uint(x) >> 16;
}

// A pair less a zero: bits below a power of two are that much more than it.
__device__ inline unsigned leveled(unsigned both, float zero, const f16* type) {
    return less(both | 0x64006400u, 1024.0f + zero, type);
}
__device__ inline unsigned leveled(unsigned both, float zero, const bf16* type) {
    if (BITS < 8) return less(both | 0x43004300u, 128.0f + zero, type);
    const float low = (float)(both & 0xffffu) - zero, high = (float)(both >> 16) - zero;
    return (__float_as_uint(low) >> 16) | (__float_as_uint(high) & 0xffff0000u);
}
