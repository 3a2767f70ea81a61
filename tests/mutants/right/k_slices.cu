// launch: block=(16, 8, 4), tile=(8, 16)
// threadIdx.z has a slice of the k; the four sums of an element meet in shared memory.
__global__ void matmul(const float *A, const float *B, float *C, int M, int N, int K)
{
    __shared__ float part[4][8][16];
    int x = threadIdx.x, y = threadIdx.y, z = threadIdx.z;
    int col = blockIdx.x * 16 + x, row = blockIdx.y * 8 + y;
    float sum = 0.0f;
    if (row < M && col < N)
        for (int k = z; k < K; k += 4) sum += A[(size_t)row * K + k] * B[(size_t)k * N + col];
    part[z][y][x] = sum;
    __syncthreads();
    if (z == 0 && row < M && col < N)
        C[(size_t)row * N + col] = part[0][y][x] + part[1][y][x] + part[2][y][x] + part[3][y][x];
}
