// Rotary embedding: pairs of the first `turned` of `size` elements of each head turn by an angle.

// x and y: element (b, s, h, i) at b * stride_b + s * stride_s + h * stride_h + i.
// cosines, sines: [positions, turned / 2], chosen by ids [batch, steps]; without ids
// [batch, steps, turned / 2]. Pairs are (2i, 2i + 1) if interleaved, else (i, i + turned / 2).
// A thread for each element of half a head, and for each one beyond `turned`.
extern "C" __global__ void rotate(
    const T* x, const T* cosines, const T* sines, const long long* ids, T* y,
    int batch, int steps, int heads, int size, int turned, int interleaved,
    long long stride_b, long long stride_s, long long stride_h) {
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
    const float c = number(cosines[position * half + i]), n = number(sines[position * half + i]);
    const long long one = start + (interleaved ? 2 * i : i);
    const long long two = start + (interleaved ? 2 * i + 1 : i + half);
    const float a = number(x[one]), d = number(x[two]);
    put(&y[one], c * a - n * d);
    put(&y[two], n * a + c * d);
}
