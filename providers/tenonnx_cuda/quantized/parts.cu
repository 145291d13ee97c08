// Rows of float32 as three rows of bfloat16 each, of which the later are what is left of the number.

extern "C" __global__ void split(const f32* x, bf16* parts, int rows, int columns) {
    follow();
    const int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= columns) return;
    for (int row = blockIdx.y; row < rows; row += gridDim.y) {
        float left = x[(long long)row * columns + column];
        for (int part = 0; part < 3; ++part) {
            const float most = __uint_as_float(__float_as_uint(left) & 0xffff0000u);
            put(&parts[((long long)row * 3 + part) * columns + column], most);
            left = left == most ? 0.0f : left - most;  // not infinity less itself
        }
    }
}
