// launch: block=(64, 4), tile=(16, 64)
// k is the outer loop, and each thread adds to four rows in turn.
__global__ void matmul(const float *A, const float *B, float *C, int M, int N, int K)
{
    int col = blockIdx.x * 64 + threadIdx.x;
    int row = blockIdx.y * 16 + threadIdx.y * 4;
    float s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    for (int k = 0; k < K; ++k) {
        float b = col < N ? B[(size_t)k * N + col] : 0;
        if (row < M) s0 += A[(size_t)row * K + k] * b;
        if (row + 1 < M) s1 += A[(size_t)(row + 1) * K + k] * b;
        if (row + 2 < M) s2 += A[(size_t)(row + 2) * K + k] * b;
        if (row + 3 < M) s3 += A[(size_t)(row + 3) * K + k] * b;
    }
    if (col >= N) return;
    if (row < M) C[(size_t)row * N + col] = s0;
    if (row + 1 < M) C[(size_t)(row + 1) * N + col] = s1;
    if (row + 2 < M) C[(size_t)(row + 2) * N + col] = s2;
    if (row + 3 < M) C[(size_t)(row + 3) * N + col] = s3;
}
