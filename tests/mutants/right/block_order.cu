// launch: block=(16, 16), grid=lambda M, N: (-(-M // 16) * -(-N // 16))
// A row of blocks goes through groups of four rows of tiles, column by column, for the caches.
__global__ void matmul(const float *A, const float *B, float *C, int M, int N, int K)
{
    int down = (M + 15) / 16, across = (N + 15) / 16;
    int group = blockIdx.x / (4 * across), first = 4 * group;
    int height = min(4, down - first), inside = blockIdx.x % (4 * across);
    size_t row = (first + inside % height) * 16 + threadIdx.y;
    size_t col = inside / height * 16 + threadIdx.x;
    if (row >= M || col >= N) return;
    float sum = 0.0f;
    for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[(size_t)k * N + col];
    C[row * N + col] = sum;
}
