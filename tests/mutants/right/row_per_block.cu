// launch: block=64, grid=lambda M, N: (1, M)
// A block has a row of C, a thread every 64th column of it.
__global__ void matmul(const float *A, const float *B, float *C, int M, int N, int K)
{
    size_t row = blockIdx.y;
    for (size_t col = threadIdx.x; col < N; col += blockDim.x) {
        float sum = 0.0f;
        for (int k = 0; k < K; ++k)
            sum += A[row * K + k] * B[(size_t)k * N + col];
        C[row * N + col] = sum;
    }
}
