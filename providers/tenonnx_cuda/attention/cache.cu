// What attention does before it looks at keys: heads turn by their position, and go to the cache.

// Elements of a cache are copied in units of 16 bytes where that can be, else one by one.
#if VECTOR
struct __align__(16) unit { unsigned words[4]; };
#else
typedef T unit;
#endif

// q, k and v: element (b, s, h, i) at b * _b + s * _s + h * _h + i; so packed ones are three
// pointers into one array. q_out is [batch, steps, heads, size]; keys are [batch, groups, capacity,
// size], values likewise of `width`. Step s of sequence b goes to start + s; with `last`, the position
// of each sequence's last step, to where the steps end there, or begin at 0. `lengths` gets how many
// steps there are then. A step is turned by its position unless ids [batch, steps] says another: of
// each head of q and k the first `turned` elements, in pairs (2i, 2i + 1) if interleaved, else (i, i +
// turned / 2), by cosines and sines [angles, turned / 2]. What has no room or no angle is left out:
// nobody can say so without waiting. A thread for each element of q, k and v.
extern "C" __global__ void append(
    const T* q, const T* k, const T* v, T* q_out, T* keys, T* values, const T* cosines,
    const T* sines, const long long* ids, const int* last, long long* lengths, int start, int batch,
    int steps, int heads, int groups, int size, int width, int capacity, int turned, int angles,
    int interleaved, long long q_b, long long q_h, long long q_s, long long k_b, long long k_h,
    long long k_s, long long v_b, long long v_h, long long v_s) {
    follow();
    const long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (last && at < batch) lengths[at] = last[at] + 1;
    const int all = (heads + groups) * size + groups * width;
    if (at >= (long long)batch * steps * all) return;
    const int within = at % all, s = at / all % steps;
    const long long b = at / all / steps;
    const long long position = (last ? max(last[b] + 1 - steps, 0) : start) + (long long)s;
    if (within >= (heads + groups) * size) {
        const int from = within - (heads + groups) * size, group = from / width, i = from % width;
        if (position < capacity)
            values[((b * groups + group) * capacity + position) * width + i] =
                v[b * v_b + s * v_s + group * v_h + i];
        return;
    }
    const int h = within / size, i = within % size;
    const bool is_query = h < heads;
    const int head = is_query ? h : h - heads;
    if (!is_query && position >= capacity) return;
    const T* from = is_query ? q + b * q_b + s * q_s + head * q_h : k + b * k_b + s * k_s + head * k_h;
    T* to = is_query ? q_out + ((b * steps + s) * heads + head) * (long long)size
                     : keys + ((b * groups + head) * capacity + position) * size;
    const long long turn = ids ? ids[b * steps + s] : position;
    if (i >= turned || turn < 0 || turn >= angles) {
        to[i] = from[i];
        return;
    }
    const int half = turned / 2;
    const int pair = interleaved ? i / 2 : i % half;
    const bool second = interleaved ? i % 2 : i >= half;
    const int other = interleaved ? i ^ 1 : second ? i - half : i + half;
    const float c = number(cosines[turn * half + pair]), n = number(sines[turn * half + pair]);
    const float own = number(from[i]), partner = number(from[other]);
    put(&to[i], second ? n * partner + c * own : c * own - n * partner);
}

// A cache with more room: rows of `held` units from the past one, and zeros up to `room`; the grid's
// second axis is keys and values. A thread for each unit of the longer rows.
extern "C" __global__ void carry(
    const unit* past_keys, const unit* past_values, unit* keys, unit* values, long long rows,
    long long held_keys, long long room_keys, long long held_values, long long room_values) {
    follow();
    const bool is_key = blockIdx.y == 0;
    const long long held = is_key ? held_keys : held_values, room = is_key ? room_keys : room_values;
    const unit* past = is_key ? past_keys : past_values;
    unit* present = is_key ? keys : values;
    const long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= rows * room) return;
    const long long row = at / room, i = at % room;
    unit none = {};
    present[at] = i < held ? past[row * held + i] : none;
}
