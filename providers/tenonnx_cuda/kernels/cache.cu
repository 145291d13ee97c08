// What attention does before it looks at keys: heads turn by their position, and go to the cache.

// q, k and v: element (b, s, h, i) at b * _b + s * _s + h * size + i; so packed ones are three
// pointers into one array. q_out is [batch, steps, heads, size]; a cache [batch, groups, capacity,
// size], in which step s of sequence b is at starts[b] + s, or without starts at start + s: the
// position it is turned by unless ids [batch, steps] says another. Of each head of q and k the first
// `turned` elements turn, in pairs (2i, 2i + 1) if interleaved, else (i, i + turned / 2); cosines and
// sines are [positions, turned / 2]. A thread for each element of q, k and v.
extern "C" __global__ void append(
    const T* q, const T* k, const T* v, T* q_out, T* keys, T* values, const T* cosines,
    const T* sines, const long long* ids, const long long* starts, int start, int batch, int steps,
    int heads, int groups, int size, int capacity, int turned, int interleaved, long long q_b,
    long long q_s, long long k_b, long long k_s, long long v_b, long long v_s) {
    const int all = heads + 2 * groups;
    const long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= (long long)batch * steps * all * size) return;
    const int i = at % size, h = at / size % all, s = at / size / all % steps;
    const long long b = at / size / all / steps, position = (starts ? starts[b] : start) + s;
    if (h >= heads + groups) {
        const int group = h - heads - groups;
        values[((b * groups + group) * capacity + position) * size + i] =
            v[b * v_b + s * v_s + (long long)group * size + i];
        return;
    }
    const bool is_query = h < heads;
    const int head = is_query ? h : h - heads;
    const T* from = is_query ? q + b * q_b + s * q_s : k + b * k_b + s * k_s;
    from += (long long)head * size;
    T* to = is_query ? q_out + ((b * steps + s) * heads + head) * (long long)size
                     : keys + ((b * groups + head) * capacity + position) * size;
    if (i >= turned) {
        to[i] = from[i];
        return;
    }
    const int half = turned / 2;
    const int pair = interleaved ? i / 2 : i % half;
    const bool second = interleaved ? i % 2 : i >= half;
    const int other = interleaved ? i ^ 1 : second ? i - half : i + half;
    const long long angle = (ids ? ids[b * steps + s] : position) * half + pair;
    const float c = number(cosines[angle]), n = number(sines[angle]);
    const float own = number(from[i]), partner = number(from[other]);
    put(&to[i], second ? n * partner + c * own : c * own - n * partner);
}
