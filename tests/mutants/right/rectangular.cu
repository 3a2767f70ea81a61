// launch: block=(32, 8), tile=(8, 32)
#define BM 8
#define BN 32
#define BK 16
__global__ void matmul(const float *A, const float *B, float *C, int M, int N, int K)
{
    __shared__ float As[BM][BK];
    __shared__ float Bs[BK][BN];
    int t = threadIdx.y * BN + threadIdx.x;
    int row = blockIdx.y * BM + threadIdx.y, col = blockIdx.x * BN + threadIdx.x;
    float sum = 0.0f;
    for (int k0 = 0; k0 < K; k0 += BK) {
        if (t < BM * BK) {
            int r = t / BK, k = t % BK;
            int global_row = blockIdx.y * BM + r;
            As[r][k] = global_row < M && k0 + k < K ? A[(size_t)global_row * K + k0 + k] : 0.0f;
        }
        for (int r = threadIdx.y; r < BK; r += BM)
            Bs[r][threadIdx.x] = k0 + r < K && col < N ? B[(size_t)(k0 + r) * N + col] : 0.0f;
        __syncthreads();
        for (int k = 0; k < BK; ++k)
            sum += As[threadIdx.y][k] * Bs[k][threadIdx.x];
        __syncthreads();
    }
    if (row < M && col < N)
        C[(size_t)row * N + col] = sum;
}
