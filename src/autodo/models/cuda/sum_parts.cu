// The sum of parts[s, tap, c, k] over splits, always in the same order, as (outputs, inputs, 3, 3).
extern "C" __global__ void __launch_bounds__(256)
    sum_parts(const float* __restrict__ parts, float* __restrict__ gradient, int outputs, int inputs, int splits,
              int k_stride, int c_stride, int tap_stride) {
  __shared__ float sums[32][33];
  const int c0 = blockIdx.x * 32, k0 = blockIdx.y * 32, tap = blockIdx.z, thread = threadIdx.x, k = thread % 32;
  float sum[4] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll 8
  for (int s = 0; s < splits; s++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int c = c0 + thread / 32 + i * 8;
      sum[i] += parts[(((long long)s * 9 + tap) * inputs + c) * outputs + k0 + k];
    }
#pragma unroll
  for (int i = 0; i < 4; i++) sums[thread / 32 + i * 8][k] = sum[i];
  __syncthreads();
  for (int i = thread / 32; i < 32; i += 8)
    gradient[(long long)(k0 + i) * k_stride + (c0 + thread % 32) * c_stride + tap * tap_stride] = sums[thread % 32][i];
}
