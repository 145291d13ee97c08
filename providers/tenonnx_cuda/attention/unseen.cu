// What is around cuDNN's attention: it wants lengths as 32-bit numbers, masks to be added, and numbers
// behind a sequence's end; and of a query that sees no key it makes a NaN, or leaves what was there.

// T is the element type; VALUE, of v, the size of a head. MASK: 0 none, 1 T added, 2 bytes of which 0
// hides.
#include "attention/shares.cuh"
#define WARPS 4

#if MASK == 2
typedef unsigned char mask_type;
__device__ inline float added(unsigned char m) { return m ? 0.0f : -INF; }
#else
typedef T mask_type;
// bfloat16's least number does not hide a key, but would where exponents are powers of two.
__device__ inline float added(T m) { return number(m) == -INF ? -INF : larger(number(m), -2e38f); }
#endif

// Queries and keys of each sequence. A thread for each of them.
extern "C" __global__ void count(const long long* lengths, int* query_counts, int* key_counts,
                                 int batch, int queries, int keys, int offset) {
    follow();
    const int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b >= batch) return;
    const long long length = min(max(lengths[b], 0ll), (long long)keys);
    key_counts[b] = (int)length;
    query_counts[b] = offset == FROM_ZERO ? (int)min(length, (long long)queries) : queries;
}

#if MASK
// Rows of a mask [rows, held], 0 or -infinity where it is bytes, in rows of `pitch` elements; keys that
// it does not tell of are hidden. A thread for each element.
extern "C" __global__ void spread(const mask_type* mask, T* bias, long long rows, int held, int pitch) {
    follow();
    const long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x, row = at / pitch;
    if (row >= rows) return;
    const int key = at % pitch;
    put(&bias[at], key < held ? added(mask[row * held + key]) : -INF);
}
#endif

// Zeros in v [batch, heads, keys, VALUE] from a sequence's end to the next multiple of `tile`. A warp for
// each of up to `tile` rows; the grid: rows, heads of v, batch.
extern "C" __global__ void clear(const long long* lengths, T* v, int keys, int tile,
                                 long long v_b, long long v_h, long long v_s) {
    follow();
    const long long length = min(max(lengths[blockIdx.z], 0ll), (long long)keys);
    const long long row = length + blockIdx.x * WARPS + threadIdx.x / WARP;
    if (row >= min((long long)keys, (length + tile - 1) / tile * tile)) return;
    v += blockIdx.z * v_b + blockIdx.y * v_h + row * v_s;
    for (int i = threadIdx.x % WARP; i < VALUE; i += WARP) put(&v[i], 0.0f);
}

// Zeros in y [batch, heads, queries, VALUE] where a query sees no key, or is none of a sequence's. A warp
// for each query; the grid: queries, heads of the mask, batch.
extern "C" __global__ void blank(
    const mask_type* mask, const long long* lengths, T* y, int heads, int queries, int keys,
    long long y_b, long long y_h, long long y_s, long long mask_b, long long mask_h, long long mask_s,
    int mask_keys, int offset, int left, int right) {
    follow();
    const int lane = threadIdx.x % WARP, batch = blockIdx.z;
    const int query = blockIdx.x * WARPS + threadIdx.x / WARP;
    if (query >= queries) return;
    const long long at = keys_before(lengths, offset, queries, batch) + query;
    const long long length = lengths ? min(lengths[batch], (long long)keys) : keys;
    long long start = left >= 0 ? max(0ll, at - left) : 0;
    long long stop = right >= 0 ? min(length, at + right + 1) : length;
    if (offset == FROM_ZERO && query >= length) stop = start;
#if MASK
    stop = min(stop, (long long)mask_keys);
    mask += batch * mask_b + blockIdx.y * mask_h + query * mask_s;
    for (; start < stop; start += WARP) {
        const bool seen = start + lane < stop && added(mask[start + lane]) != -INF;
        if (warp_max(seen) > 0.0f) return;
    }
#else
    if (start < stop) return;
#endif
    const int each = heads / gridDim.y;
    for (int i = lane; i < each * VALUE; i += WARP) {
        const int head = blockIdx.y * each + i / VALUE;
        put(&y[batch * y_b + head * y_h + query * y_s + i % VALUE], 0.0f);
    }
}
