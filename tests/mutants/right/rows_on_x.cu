// launch: block=(16, 16), grid=lambda M, N: (-(-M // 16), -(-N // 16))
__global__ void matmul(const float *A, const float *B, float *C, int M, int N, int K)
{
    const size_t row = blockIdx.x * blockDim.x + threadIdx.x;
    const size_t col = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= M || col >= N) return;
    float sum = 0;
    for (size_t k = 0; k < K; k++) sum = fmaf(A[row * K + k], B[k * N + col], sum);
    C[row * N + col] = sum;
}
