// Rotary embedding: pairs of the first `turned` of `size` elements of each head turn by an angle.

// x and y: element (b, s, h, i) at b * stride_b + s * stride_s + h * stride_h + i.
// cosines, sines: [positions, turned / 2], chosen by ids [batch, steps]; without ids
// [batch, steps, turned / 2]. Pairs are (2i, 2i + 1) if interleaved, else (i, i + turned / 2). What
// has no position there is not turned: nobody can say so without waiting. A thread for each element
// of half a head, and for each one beyond `turned`.
extern "C" __global__ void rotate(
    const T* x, const T* cosines, const T* sines, const long long* ids, T* y,
    int batch, int steps, int heads, int size, int turned, int interleaved, long long positions,
    long long stride_b, long long stride_s, long long stride_h) {
    follow();
    const int half = turned / 2, each = half + size - turned;
    const long long place = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (place >= (long long)batch * steps * heads * each) return;
    const int i = place % each, h = place / each % heads;
    const int s = place / each / heads % steps, b = place / each / heads / steps;
    const long long start = b * stride_b + s * stride_s + h * stride_h;
    if (i >= half) {
        y[start + half + i] = x[start + half + i];
        return;
    }
    const long long position = ids ? ids[(long long)b * steps + s] : (long long)b * steps + s;
    const bool known = position >= 0 && position < positions;
    const float c = known ? number(cosines[position * half + i]) : 1.0f;
    const float n = known ? number(sines[position * half + i]) : 0.0f;
    const long long one = start + (interleaved ? 2 * i : i);
    const long long two = start + (interleaved ? 2 * i + 1 : i + half);
    const float a = number(x[one]), d = number(x[two]);
    put(&y[one], c * a - n * d);
    put(&y[two], n * a + c * d);
}

// y = x * cosines + concat(-x[half:], x[:half]) * sines, each of [a, b, c, 2 * half] with a step
// for the first three axes. A thread for each pair.
extern "C" __global__ void turn(
    const T* x, const T* cosines, const T* sines, T* y, long long x_a, long long x_b, long long x_c,
    long long c_a, long long c_b, long long c_c, long long s_a, long long s_b, long long s_c,
    int b_size, int c_size, int half, long long count) {
    follow();
    const long long place = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (place >= count) return;
    const int i = place % half;
    const long long row = place / half, c = row % c_size, b = row / c_size % b_size;
    const long long a = row / c_size / b_size;
    const T* const from = x + a * x_a + b * x_b + c * x_c + i;
    const T* const cosine = cosines + a * c_a + b * c_b + c * c_c + i;
    const T* const sine = sines + a * s_a + b * s_b + c * s_c + i;
    const float low = number(from[0]), high = number(from[half]);
    T* const to = y + row * 2 * half + i;
    put(&to[0], low * number(cosine[0]) - high * number(sine[0]));
    put(&to[half], high * number(cosine[half]) + low * number(sine[half]));
}
