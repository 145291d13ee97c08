// A stored matrix of 8, 4 or 2 bits an element, as floats.

#include "quantized/levels.cuh"

#define UNROLL _Pragma("unroll")  // registers have no addresses

// Neighbors in K that have one scale.
#define ALIKE (BY_ROWS && K_BLOCK % PER == 0)

struct __align__(sizeof(T) * PER < 16 ? sizeof(T) * PER : 16) word_of { T each[PER]; };

// out = some rows of the matrix, from the first on. Rows are n and columns k if BY_ROWS, else the
// other way about. The grid: words of a row, and any number of rows. The arguments of `levels` are
// those of nbits.cu.
extern "C" __global__ void dequantize(
    const unsigned* w, const S* scales, const void* zeros, T* out, int first, int rows, int columns,
    int k_step, int n_step, int zero_row) {
    follow();
    const levels l = {scales, zeros, K_BLOCK, k_step, N_BLOCK, n_step, zero_row};
    const int word = blockIdx.x * blockDim.x + threadIdx.x, words = columns / PER;
    if (word >= words) return;
    for (int row = blockIdx.y; row < rows; row += gridDim.y) {
        const unsigned bits = w[(long long)(first + row) * words + word];
        word_of values;
        float scale = 0.0f, zero = 0.0f;
        UNROLL for (int e = 0; e < PER; ++e) {
            const int column = word * PER + e;
            const int k = BY_ROWS ? column : first + row, n = BY_ROWS ? first + row : column;
            if (e == 0 || !ALIKE) {
                scale = l.scale(k, n);
                zero = l.zero(k, n);
            }
            put(&values.each[e], ((float)element(bits, e) - zero) * scale);
        }
        *(word_of*)(out + (long long)row * columns + word * PER) = values;
    }
}
