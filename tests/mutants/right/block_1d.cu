// launch: block=256, grid=lambda M, N: -(-M * N // 256)
__global__ void matmul(const float *A, const float *B, float *C, int M, int N, int K)
{
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= (size_t)M * N) return;
    const float *a = &A[i / N * K], *b = &B[i % N];
    float sum = 0.0f;
    for (int k = 0; k < K; ++k, b += N)
        sum += a[k] * *b;
    C[i] = sum;
}
