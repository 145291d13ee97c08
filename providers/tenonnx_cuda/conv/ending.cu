// The last steps of a convolution, of sums that something else left: in shares, or in its result.

// S is the type of the sums: float, or T where they are in y already.
#include "elementwise/activations.cuh"
#include "endings.cuh"  // of elementwise.formulas

// y[i] = the activation of bias of its map + extra[i] + sum over s of sums[s, i], in order. A map has
// `inner` elements in turn: all places where channels are first, one where they are last; there are
// all_maps of them, those of all groups. Null: bias, extra.
extern "C" __global__ void finish(
    const S* sums, const T* bias, const T* extra, T* y, int slices, long long count,
    int all_maps, int inner, float alpha, float beta) {
    follow();
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    float total = bias ? number(bias[i / inner % all_maps]) : 0.0f;
    for (int s = 0; s < slices; ++s) total += number(sums[s * count + i]);
    if (extra) total += number(extra[i]);
    put(&y[i], ACTIVATED(total, alpha, beta));
}
