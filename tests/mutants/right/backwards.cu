// launch: block=(16, 16)
// From the last k to the first.
__global__ void matmul(const float *A, const float *B, float *C, int M, int N, int K)
{
    int col = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
    if (row >= M || col >= N) return;
    const float *a = A + (size_t)row * K + K, *b = B + (size_t)K * N + col;
    float sum = 0.0f;
    int left = K;
    while (left--) {
        a -= 1;
        b -= N;
        sum += *a * *b;
    }
    C[(size_t)row * N + col] = sum;
}
