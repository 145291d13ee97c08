// Scatter with a reduction, for the types and reductions that CUDA's atomics leave out.

// data[targets[i]] = reduce(data[targets[i]], updates[i]); OPERATION: 0 sum, 1 product, 2 most,
// 3 least. E is any plain type of WIDTH bytes; elements of 1 and 2 bytes change within their word.
// Targets that data [size] has not are left out: nobody can say so without waiting.
__device__ inline E reduce(E a, E b) {
    if (OPERATION == 0) return a + b;
    if (OPERATION == 1) return a * b;
    // A NaN wins, as in numpy's maximum and minimum.
    if (a != a || b != b) return a != a ? a : b;
    return (OPERATION == 2) == (a > b) ? a : b;
}

#if WIDTH == 8
typedef unsigned long long word;
#else
typedef unsigned word;
#endif

extern "C" __global__ void scatter(
    E* data, const long long* targets, const E* updates, long long count, long long size) {
    follow();
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count || targets[i] < 0 || targets[i] >= size) return;
    char* at = (char*)(data + targets[i]);
    const int inside = (int)((size_t)at % sizeof(word));
    word* where = (word*)(at - inside);
    word seen = *where, expected;
    do {
        expected = seen;
        union { word whole; char bytes[sizeof(word)]; } next;
        next.whole = expected;
        E value;
        for (int byte = 0; byte < WIDTH; ++byte) ((char*)&value)[byte] = next.bytes[inside + byte];
        value = reduce(value, updates[i]);
        for (int byte = 0; byte < WIDTH; ++byte) next.bytes[inside + byte] = ((char*)&value)[byte];
        seen = atomicCAS(where, expected, next.whole);
    } while (seen != expected);
}
