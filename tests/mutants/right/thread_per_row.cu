// launch: block=64, grid=lambda M, N: -(-M // 64)
// A thread has a whole row of C.
__global__ void matmul(const float *A, const float *B, float *C, int M, int N, int K)
{
    size_t row = blockIdx.x * 64 + threadIdx.x;
    if (row < M)
        for (int col = 0; col < N; ++col) {
            float sum = 0.0f;
            for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[(size_t)k * N + col];
            C[row * N + col] = sum;
        }
}
