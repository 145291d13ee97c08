// What becomes of the sums of a convolution. Include activations.cuh first.

// ACTIVATION: 0 none, 1 Relu, 2 LeakyRelu, 3 Clip, 4 HardSigmoid, 5 HardSwish, 6 Sigmoid, 7 Tanh.
__device__ inline float activated(float x, float alpha, float beta) {
    switch (ACTIVATION) {
        case 1: return x < 0.0f ? 0.0f : x;
        case 2: return leaky(x, alpha);
        case 3: return clamped(x, alpha, beta);
        case 4: return clamped(alpha * x + beta, 0.0f, 1.0f);
        case 5: return x * clamped(x / 6.0f + 0.5f, 0.0f, 1.0f);
        case 6: return sigmoid(x);
        case 7: return tanhf(x);
    }
    return x;
}
