// launch: block=(32, 8)
// Four sums for each element, added up at the end.
__global__ void matmul(const float *A, const float *B, float *C, int M, int N, int K)
{
    int col = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 8 + threadIdx.y;
    if (row >= M || col >= N) return;
    float sum[4] = {0, 0, 0, 0};
    for (int k = 0; k < K; ++k)
        sum[k & 3] += A[(size_t)row * K + k] * B[(size_t)k * N + col];
    C[(size_t)row * N + col] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
}
