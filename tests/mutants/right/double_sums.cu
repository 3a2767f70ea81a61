// launch: block=(16, 8)
__global__ void matmul(const float *A, const float *B, float *C, int M, int N, int K)
{
    int col = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 8 + threadIdx.y;
    if (row >= M || col >= N) return;
    double sum = 0.0;
    for (int k = 0; k < K; ++k)
        sum += (double)A[(size_t)row * K + k] * B[(size_t)k * N + col];
    C[(size_t)row * N + col] = (float)sum;
}
