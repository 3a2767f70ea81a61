// launch: block=(32, 8)
// A lane loads one element of A for all lanes of its warp.
__global__ void matmul(const float *A, const float *B, float *C, int M, int N, int K)
{
    int col = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    float s = 0;
    for (int k0 = 0; k0 < K; k0 += 32) {
        float a = row < M && k0 + threadIdx.x < K ? A[(size_t)row * K + k0 + threadIdx.x] : 0;
        for (int k = 0; k < 32 && k0 + k < K; k++) {
            float ak = __shfl_sync(0xffffffff, a, k);
            if (col < N) s = fmaf(ak, __ldg(&B[(size_t)(k0 + k) * N + col]), s);
        }
    }
    if (row < M && col < N) C[(size_t)row * N + col] = s;
}
