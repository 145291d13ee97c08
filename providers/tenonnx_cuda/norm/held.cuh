// A row of n elements that the THREADS of its block hold: each has HELD times WIDTH neighbors.

#define UNROLL _Pragma("unroll")  // registers have no addresses

// The first of a thread's neighbors; from n on there are none.
__device__ inline int neighbors(int h) { return (h * THREADS + (int)threadIdx.x) * WIDTH; }

// Calls f with the place in the row, and in what the thread holds, of each element that it has.
template <class F> __device__ inline void each_held(int n, F f) {
    UNROLL for (int h = 0; h < HELD; ++h)
        if (neighbors(h) < n)
            UNROLL for (int e = 0; e < WIDTH; ++e) f(h, e);
}

// Adds a part of an array to what is held.
__device__ inline void add(float (*held)[WIDTH], const T* from, int n) {
    UNROLL for (int h = 0; h < HELD; ++h)
        if (neighbors(h) < n) {
            const pack some = read<ALL>(from, neighbors(h), 0);
            UNROLL for (int e = 0; e < WIDTH; ++e) held[h][e] += number(some.each[e]);
        }
}

// Reads a part of an array as it is.
__device__ inline void keep(pack* held, const T* from, int n) {
    UNROLL for (int h = 0; h < HELD; ++h)
        if (neighbors(h) < n) held[h] = read<ALL>(from, neighbors(h), 0);
}

// Writes f of the same.
template <class F> __device__ inline void write(T* to, int n, F f) {
    UNROLL for (int h = 0; h < HELD; ++h)
        if (neighbors(h) < n) {
            pack some;
            UNROLL for (int e = 0; e < WIDTH; ++e) put(&some.each[e], f(h, e));
            *(pack*)(to + neighbors(h)) = some;
        }
}
