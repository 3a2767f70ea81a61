// launch: block=(32, 4), grid=lambda M, N: (N, -(-M // 4))
// A warp has one element: its lanes share the k, and add up by shuffles.
__global__ void matmul(const float *A, const float *B, float *C, int M, int N, int K)
{
    size_t col = blockIdx.x, row = blockIdx.y * 4 + threadIdx.y;
    if (row >= M) return;
    float sum = 0.0f;
    for (int k = threadIdx.x; k < K; k += 32) sum += A[row * K + k] * B[(size_t)k * N + col];
    for (int step = 16; step; step /= 2) sum += __shfl_down_sync(0xffffffff, sum, step);
    if (threadIdx.x == 0) C[row * N + col] = sum;
}
