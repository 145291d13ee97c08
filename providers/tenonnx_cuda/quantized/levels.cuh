// Element i of the stored matrix is bits (i % PER) * BITS and up of word i / PER; two's complement
// if SIGNED. Its value is (element - zero) * scale, where both stand at
//   k / k_block * k_step + n / n_block * n_step
// of their arrays (zeros that are PACKED: rows of zero_row elements, n / n_block the row, if
// zero_row > 0; else flat). ZERO: 0 none, MIDDLE is subtracted; 1 packed like the matrix; 2 of S.
#define PER (32 / BITS)

__device__ inline int element(unsigned word, int i) {
    const int bits = (int)(word >> (i * BITS)) & ((1 << BITS) - 1);
    return SIGNED ? (bits ^ (1 << (BITS - 1))) - (1 << (BITS - 1)) : bits;
}

struct levels {
    const S* scales;
    const void* zeros;
    int k_block, k_step, n_block, n_step, zero_row;

    __device__ float scale(int k, int n) const {
        return number(scales[(long long)(k / k_block) * k_step + (long long)(n / n_block) * n_step]);
    }
    __device__ int packed_zero(int k, int n) const {
        if (ZERO != 1) return MIDDLE;
        const long long kb = k / k_block, nb = n / n_block;
        const long long i = zero_row > 0 ? nb * zero_row + kb : kb * k_step + nb * n_step;
        return element(((const unsigned char*)zeros)[i * BITS / 8], (int)(i % (8 / BITS)));
    }
    __device__ float zero(int k, int n) const {
        if (ZERO < 2) return packed_zero(k, n);
        return number(((const S*)zeros)[(long long)(k / k_block) * k_step +
                                        (long long)(n / n_block) * n_step]);
    }
};
