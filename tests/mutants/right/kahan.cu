// launch: block=(32, 8)
__global__ void matmul(const float *A, const float *B, float *C, int M, int N, int K)
{
    int col = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 8 + threadIdx.y;
    if (row >= M || col >= N) return;
    float sum = 0.0f, lost = 0.0f;
    for (int k = 0; k < K; ++k) {
        float term = __fmul_rn(A[(size_t)row * K + k], B[(size_t)k * N + col]) - lost;
        float next = sum + term;
        lost = (next - sum) - term;
        sum = next;
    }
    C[(size_t)row * N + col] = sum;
}
