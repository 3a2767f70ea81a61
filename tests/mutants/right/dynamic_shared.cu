// launch: block=(16, 16), shared=2 * 16 * 16 * 4
// Both tiles in the dynamic shared memory of the launch, tile of B behind that of A.
extern __shared__ float tiles[];

__global__ void matmul(const float *A, const float *B, float *C, int M, int N, int K)
{
    const int T = blockDim.x;
    float *As = tiles, *Bs = tiles + T * T;
    int tx = threadIdx.x, ty = threadIdx.y;
    int col = blockIdx.x * T + tx, row = blockIdx.y * T + ty;
    float sum = 0.0f;
    for (int k0 = 0; k0 < K; k0 += T) {
        As[ty * T + tx] = row < M && k0 + tx < K ? A[(size_t)row * K + k0 + tx] : 0.0f;
        Bs[ty * T + tx] = k0 + ty < K && col < N ? B[(size_t)(k0 + ty) * N + col] : 0.0f;
        __syncthreads();
        for (int k = 0; k < T; ++k) sum += As[ty * T + k] * Bs[k * T + tx];
        __syncthreads();
    }
    if (row < M && col < N) C[(size_t)row * N + col] = sum;
}
