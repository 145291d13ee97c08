// Tensor cores, by the instructions of compute capability 8.0, and copies that nobody waits for.

// Lane l of a warp has of a matrix [16, 8] of results rows l / 4 and l / 4 + 8, columns
// l % 4 * 2 + {0, 1}, as d[2 * (row >= 8) + column % 2]. Of a factor [16, 16] it has in a[i] row
// l / 4 + 8 * (i % 2), columns l % 4 * 2 + 8 * (i / 2) + {0, 1}; of the other, [16, 8], in b[i] rows
// l % 4 * 2 + 8 * i + {0, 1}, column l / 4. The first of two elements is in the low 16 bits.
#ifndef HOSTED
#define MMA(type)                                                                            \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 "              \
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"           \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                            \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
__device__ inline void mma(float* d, const unsigned* a, const unsigned* b, const f16*) {
    MMA("f16");
}
__device__ inline void mma(float* d, const unsigned* a, const unsigned* b, const bf16*) {
    MMA("bf16");
}

// The same of [16, 8] and [8, 8] float32s that tf32 rounded: a[i] is row l / 4 + 8 * (i % 2), column
// l % 4 + 4 * (i / 2), b[i] row l % 4 + 4 * i, column l / 4.
__device__ inline float tf32(float x) {
    unsigned bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return __uint_as_float(bits);
}
__device__ inline void mma_tf32(float* d, const float* a, const float* b) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])),
                   "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[3])),
                   "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
}

// (x & mask) | bits, in one instruction.
__device__ inline unsigned both_or(unsigned x, unsigned mask, unsigned bits) {
    unsigned result;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(x), "r"(mask), "r"(bits));
    return result;
}

// a * b + c of pairs, rounded once.
__device__ inline unsigned multiply_add(unsigned a, unsigned b, unsigned c, const f16*) {
    unsigned result;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
    return result;
}
__device__ inline unsigned multiply_add(unsigned a, unsigned b, unsigned c, const bf16*) {
    unsigned result;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
    return result;
}

// Copies 16 bytes to shared memory; both addresses are multiples of 16.
__device__ inline void copy_16(void* to, const void* from) {
    const unsigned at = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
}
__device__ inline void end_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until all of the thread's groups of copies but the last few are there.
template <int LATER> __device__ inline void await_group() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LATER) : "memory");
}
#endif
