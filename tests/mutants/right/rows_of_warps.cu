// launch: block=(32, 8), tile=(8, 1)
__global__ void matmul(const float *A, const float *B, float *C, int M, int N, int K)
{
    __shared__ float s[8][32];  // a row for each warp, and a warp for each element of C
    int lane = threadIdx.x, warp = threadIdx.y, row = blockIdx.y * 8 + warp, col = blockIdx.x;
    float sum = 0.0f;

    for (int k = lane; k < K && row < M; k += 32)
        sum += A[(size_t)row * K + k] * B[(size_t)k * N + col];
    s[warp][lane] = sum;
    for (int i = 16; i > 0; i /= 2) {
        __syncwarp();
        if (lane < i) s[warp][lane] += s[warp][lane + i];
    }
    if (lane == 0 && row < M) C[(size_t)row * N + col] = s[warp][0];
}
