// launch: block=(32, 16)
#define BK 32
__global__ void matmul(const float *A, const float *B, float *C, int M, int N, int K)
{
    __shared__ float As[16][BK];
    int col = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
    float sum = 0.0f;
    for (int k0 = 0; k0 < K; k0 += BK) {
        int k = k0 + threadIdx.x;
        As[threadIdx.y][threadIdx.x] = row < M && k < K ? A[(size_t)row * K + k] : 0.0f;
        __syncthreads();
        if (col < N)
            for (int j = 0; j < BK && k0 + j < K; ++j)
                sum += As[threadIdx.y][j] * B[(size_t)(k0 + j) * N + col];
        __syncthreads();
    }
    if (row < M && col < N) C[(size_t)row * N + col] = sum;
}
