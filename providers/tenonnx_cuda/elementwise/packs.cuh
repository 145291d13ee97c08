// Neighbors that a thread reads and writes at once. WIDTH is a power of two.

struct __align__(sizeof(T) * WIDTH) pack { T each[WIDTH]; };

// How an array is read that stands for a larger one.
#define ALL 0     // it has as many elements
#define AGAIN 1   // it is repeated; a multiple of WIDTH
#define ALWAYS 2  // it is one number

template <int HOW> __device__ inline pack read(const T* from, unsigned first, unsigned period) {
    if (HOW == ALL) return *(const pack*)(from + first);
    if (HOW == AGAIN) return *(const pack*)(from + first % period);
    pack same;
    for (int e = 0; e < WIDTH; ++e) same.each[e] = from[0];
    return same;
}
