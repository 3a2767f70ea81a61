// launch: block=(16, 32)
__global__ void matmul(const float *A, const float *B, float *C, int M, int N, int K)
{
    __shared__ float Bs[32][16];
    int col = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
    float sum = 0.0f;
    for (int k0 = 0; k0 < K; k0 += 32) {
        int count = min(32, K - k0);
        if (threadIdx.y < count && col < N)
            Bs[threadIdx.y][threadIdx.x] = B[(size_t)(k0 + threadIdx.y) * N + col];
        __syncthreads();
        if (row < M && col < N)
            for (int k = 0; k < count; ++k)
                sum += A[(size_t)row * K + k0 + k] * Bs[k][threadIdx.x];
        __syncthreads();
    }
    if (row < M && col < N) C[(size_t)row * N + col] = sum;
}
