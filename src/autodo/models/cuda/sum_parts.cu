// The sum of parts[s, tap, c, k] over splits, always in the same order, as (outputs, inputs, 3, 3).
//
// A block has 8 inputs, 32 outputs and a tap; four groups of 64 threads take every fourth split, so that loads of many
// splits are under way at once. A thread adds four outputs.
extern "C" __global__ void __launch_bounds__(256, 3)
    sum_parts(const float* __restrict__ parts, float* __restrict__ gradient, int outputs, int inputs, int splits,
              int k_stride, int c_stride, int tap_stride) {
  __shared__ float sums[4][32][9];
  const int c0 = blockIdx.x * 8, k0 = blockIdx.y * 32, tap = blockIdx.z, thread = threadIdx.x;
  const int four = thread & 7, c = thread >> 3 & 7, group = thread >> 6;
  const long long next = 9LL * inputs * outputs;
  const float* from = parts + group * next + ((long long)tap * inputs + c0 + c) * outputs + k0 + four * 4;
  float4 sum = make_float4(0.f, 0.f, 0.f, 0.f);
  for (int s = group; s < splits; s += 32, from += 32 * next) {
    float4 part[8];
#pragma unroll
    for (int i = 0; i < 8; i++)
      part[i] = s + 4 * i < splits ? *(const float4*)(from + 4 * i * next) : make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll
    for (int i = 0; i < 8; i++) {
      sum.x += part[i].x;
      sum.y += part[i].y;
      sum.z += part[i].z;
      sum.w += part[i].w;
    }
  }
  sums[group][four * 4][c] = sum.x;
  sums[group][four * 4 + 1][c] = sum.y;
  sums[group][four * 4 + 2][c] = sum.z;
  sums[group][four * 4 + 3][c] = sum.w;
  __syncthreads();
  const int input = thread & 7, output = thread >> 3;
  float total = 0.f;
#pragma unroll
  for (int g = 0; g < 4; g++) total += sums[g][output][input];
  gradient[(long long)(k0 + output) * k_stride + (c0 + input) * c_stride + tap * tap_stride] = total;
}
