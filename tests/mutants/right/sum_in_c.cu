// launch: block=(16, 16)
// C itself is the sum: set to 0 first.
__global__ void matmul(const float *A, const float *B, float *C, int M, int N, int K)
{
    size_t col = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
    if (row < M && col < N) {
        C[row * N + col] = 0.0f;
        for (int k = 0; k < K; ++k)
            C[row * N + col] += A[row * K + k] * B[(size_t)k * N + col];
    }
}
