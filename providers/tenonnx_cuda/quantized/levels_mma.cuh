// Stored levels and activations as factors of a product on tensor cores.

struct __align__(16) sixteen { unsigned words[4]; };

#define UNROLL _Pragma("unroll")  // registers have no addresses

// x of float32 is given as three bfloat16s, each what the ones before leave over, in rows of their
// own one after another; the stored levels are exact in either type.
template <class X> struct factors { typedef X type; static const int parts = 1; };
template <> struct factors<f32> { typedef bf16 type; static const int parts = 3; };
typedef factors<T>::type H;
#define PARTS (factors<T>::parts)
#define ROWS (8 * TILES / PARTS)  // of y, of which PARTS of x make columns of TILES tiles

// What is added to stored two's complement so that the lowest level is 0, and its bits in words.
#define OFFSET (SIGNED ? 1 << (BITS - 1) : 0)
#define SIGNS (SIGNED ? 0xffffffffu / ((1u << BITS) - 1) << (BITS - 1) : 0u)

#define LEVEL (((1u << BITS) - 1) * 0x10001u)

// Two levels less a zero, all of them 0 and up: they stand `up` elements up in the halves of `both`.
// Bits below a power of two are that much more than it: where they stand higher, times a factor.
__device__ inline unsigned leveled(unsigned both, int up, unsigned zero, const f16*) {
    const unsigned raised = both_or(both, LEVEL << (BITS * up), 0x64006400u);
    const unsigned fewer = BITS * up * 0x04000400u;  // from the exponents of 1024 and of 1
    return multiply_add(raised, 0x3c003c00u - fewer,
                        (zero << (BITS * up)) * 0x10001u + (0xe400e400u - fewer), (const f16*)0);
}
__device__ inline unsigned leveled(unsigned both, int up, unsigned zero, const bf16*) {
    if (BITS < 8)
        return multiply_add(both_or(both >> (BITS * up), LEVEL, 0x43004300u), 0x3f803f80u,
                            zero * 0x10001u + 0xc300c300u, (const bf16*)0);
    const float less = -8388608.0f - (float)zero;
    const float low = __uint_as_float(both_or(both, 0xffu, 0x4b000000u)) + less;
    const float high = __uint_as_float(both_or(both >> 16, 0xffu, 0x4b000000u)) + less;
    return __byte_perm(__float_as_uint(low), __float_as_uint(high), 0x7632);
}
