// Activations that are more than one operation, on numbers. A NaN goes through all of them.

__device__ inline float gelu(float x) { return 0.5f * x * (1.0f + erff(x * 0.70710678f)); }
__device__ inline float gelu_by_tanh(float x) {
    return 0.5f * x * (1.0f + tanhf(0.79788456f * x * (1.0f + 0.044715f * x * x)));
}
__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ inline float clamped(float x, float low, float high) {
    return x < low ? low : x > high ? high : x;
}
__device__ inline float leaky(float x, float slope) { return x < 0.0f ? x * slope : x; }
