// TensorScatter: new steps are written into a cache, from each sequence's own place on.

// E is a plain type of an element's width, or of 16 bytes.
#if WIDTH == 16
struct __align__(16) element { unsigned words[4]; };
#else
typedef E element;
#endif

// cache is [batch, outer, limit, inner], update [batch, outer, length, inner]; step s of sequence b goes
// to firsts[b] + s, without firsts to s; around the end if CIRCULAR, else what lies outside is left out:
// nobody can say so without waiting. A thread for each element of update.
extern "C" __global__ void write_steps(
    element* cache, const element* update, const long long* firsts, long long count, long long outer,
    long long limit, long long length, long long inner) {
    follow();
    const long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= count) return;
    const long long i = at % inner, s = at / inner % length, o = at / inner / length % outer;
    const long long b = at / inner / length / outer;
    long long to = (firsts ? firsts[b] : 0) + s;
#if CIRCULAR
    to = (to % limit + limit) % limit;
#endif
    if (to < 0 || to >= limit) return;
    cache[((b * outer + o) * limit + to) * inner + i] = update[at];
}
