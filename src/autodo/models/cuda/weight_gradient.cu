// parts[s, ky, kx, c, k] = sum over the pixels of split s of x[n, h + ky - 1, w + kx - 1, c] dy[n, h, w, k]
//
// A tile is two patches (128 pixels). A block has 64 inputs, all nine taps and NT outputs: each of three
// warpgroups a row of the kernel. Of 32 inputs that remain, planes 4 .. 7 are planes 0 .. 3 one row lower, so
// that a product has two rows of the kernel: the first warpgroup has rows 0 and 1, the second row 2.
#if SIDE == 8
#define HALO_COLUMNS 10
#define HALOS 2
#define NEXT_PATCH 100
#else
#define HALO_COLUMNS 18
#define HALOS 1
#define NEXT_PATCH 8
#endif
#define HALO (10 * HALO_COLUMNS)
#define PIXELS (HALOS * HALO)
#define PLANE (PIXELS + (PIXELS % 8 == 0))
#define DY_PLANE 129
#define X_BYTES (8 * PLANE * 16)
#define STAGE_BYTES (X_BYTES + NT / 8 * DY_PLANE * 16)
#define BARRIERS_AT (STAGES * STAGE_BYTES)
static_assert(BARRIERS_AT + 16 * STAGES == SHARED, "the memory that is asked for");

struct Work {
  int block, column, split, begin, end;
  bool half;
  __device__ Work(int work, int tiles, int inputs, int columns, int splits) {
    const int blocks = (inputs + 63) / 64;
    column = work % columns;
    block = work / columns % blocks;
    split = work / columns / blocks;
    half = (block + 1) * 64 > inputs;
    begin = (long long)tiles * split / splits;
    end = (long long)tiles * (split + 1) / splits;
  }
};

extern "C" __global__ void __launch_bounds__(512, 1)
    weight_gradient(const bf16* __restrict__ x, const bf16* __restrict__ dy, float* __restrict__ parts, int tiles,
                    int inputs, int outputs, int splits) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const u32 base = shared_address(memory), full = base + BARRIERS_AT, empty = full + 8 * STAGES;
  const int thread = threadIdx.x, group = thread >> 7, columns = outputs / NT;
  const int works = columns * ((inputs + 63) / 64) * splits;
  if (thread == 0) {
    for (int s = 0; s < STAGES; s++) {
      barrier_init(full + 8 * s, 128);
      barrier_init(empty + 8 * s, 12);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    SHOW_WRITES;
  }
  __syncthreads();
  if (group == 0) {
    FEWER_REGISTERS(56);
    const int plane = thread & 7, place = thread >> 3;
    int stage = 0, phase = 1;
    for (int i = blockIdx.x; i < works; i += gridDim.x) {
      const Work work(i, tiles, inputs, columns, splits);
      const int down = work.half && plane >= 4 ? 1 : 0;
      const bf16* channels = x + work.block * 64 + (work.half ? plane & 3 : plane) * 8;
      for (int tile = work.begin; tile < work.end; tile++) {
#if SIDE == 32
        const int image = tile >> 3, h0 = (tile >> 1 & 3) * 8, w0 = (tile & 1) * 16;
#elif SIDE == 16
        const int image = tile >> 1, h0 = (tile & 1) * 8, w0 = 0;
#else
        const int image = tile * 2, h0 = 0, w0 = 0;
#endif
        barrier_wait(empty + 8 * stage, phase);
        const u32 to = base + stage * STAGE_BYTES + plane * (PLANE * 16);
        {  // columns of 16 threads by rows, then the two that are left of each halo
          const int halo = HALOS == 2 ? place >> 3 : 0, column = HALOS == 2 ? place & 7 : place;
          const int w = w0 + column - 1, h = h0 - 1 + down;
          const bf16* from = channels + (((long long)(image + halo) * SIDE + h) * SIDE + w) * inputs;
          const u32 at = to + (halo * HALO + column) * 16;
#pragma unroll
          for (int row = 0; row < 10; row++) {
            const bool inside = (unsigned)(h + row) < SIDE && (unsigned)w < SIDE;
            copy16(at + row * (HALO_COLUMNS * 16), inside ? from + row * SIDE * inputs : x, inside);
          }
        }
#pragma unroll
        for (int j = 0; j < HALOS * 20; j += 16) {
          const int rest = j + place, row = rest / (2 * HALOS), halo = rest % (2 * HALOS) >> 1;
          const int column = HALO_COLUMNS - 2 + (rest & 1), w = w0 + column - 1, h = h0 + row - 1 + down;
          if (rest < HALOS * 20) {
            const bool inside = (unsigned)h < SIDE && (unsigned)w < SIDE;
            const bf16* from = channels + (((long long)(image + halo) * SIDE + h) * SIDE + w) * inputs;
            copy16(to + (halo * HALO + row * HALO_COLUMNS + column) * 16, inside ? from : x, inside);
          }
        }
        const u32 dy_to = base + stage * STAGE_BYTES + X_BYTES;
        const bf16* of = dy + (((long long)image * SIDE + h0) * SIDE + w0) * outputs + work.column * NT;
#pragma unroll
        for (int pass = 0; pass < 8; pass++) {
          const int row = pass % 4 * 2 + (place >> 3), column = place & 7;
          const int pixel = SIDE == 8 ? (pass / 4 * 8 + row) * 8 + column : row * SIDE + pass / 4 * 8 + column;
          copy16(dy_to + (plane * DY_PLANE + pass * 16 + place) * 16, of + pixel * outputs + plane * 8, true);
        }
#pragma unroll
        for (int pass = 0; pass < (NT - 64) / 8; pass++) {
          const int many = (NT - 64) / 8, k = pass * 128 + thread, p = k / many, column = p & 7, row = p >> 3 & 7;
          const int pixel = SIDE == 8 ? p : row * SIDE + (p >> 6) * 8 + column;
          copy16(dy_to + ((8 + k % many) * DY_PLANE + p) * 16, of + pixel * outputs + 64 + k % many * 8, true);
        }
        arrive_after_copies(full + 8 * stage);
        if (++stage == STAGES) { stage = 0; phase ^= 1; }
      }
    }
  } else {
    MORE_REGISTERS(152);
    const int warp = thread >> 5 & 3, lane = thread & 31;
    int stage = 0, phase = 0;
    for (int i = blockIdx.x; i < works; i += gridDim.x) {
      const Work work(i, tiles, inputs, columns, splits);
      const int ky = work.half ? (group == 2 ? 2 : 0) : group - 1;
      const bool idle = work.half && group == 3;
      float sum0[NT / 2], sum1[NT / 2], sum2[NT / 2];
#pragma unroll
      for (int k = 0; k < NT / 2; k++) sum0[k] = sum1[k] = sum2[k] = 0.f;
      int done = -1;
      for (int tile = work.begin; tile < work.end; tile++) {
        barrier_wait(full + 8 * stage, phase);
        SHOW_WRITES;
        if (!idle) {
          const u64 tap = matrix(base + stage * STAGE_BYTES, HALO_COLUMNS, PLANE) + ky * HALO_COLUMNS;
          const u64 d = matrix(base + stage * STAGE_BYTES + X_BYTES, 8, DY_PLANE);
          MMA_BEGIN;
#pragma unroll
          for (int step = 0; step < 8; step++) {  // 16 pixels: two rows of a patch
            const u64 at = tap + step / 4 * NEXT_PATCH + step % 4 * 2 * HALO_COLUMNS;
            mma(sum0, at, d + step * 16);
            mma(sum1, at + 1, d + step * 16);
            mma(sum2, at + 2, d + step * 16);
          }
          MMA_COMMIT;
          MMA_WAIT(1);
        }
        if (lane == 0 && done >= 0) barrier_arrive(empty + 8 * done);
        done = stage;
        if (++stage == STAGES) { stage = 0; phase ^= 1; }
      }
      MMA_WAIT(0);
#pragma unroll
      for (int k = 0; k < NT / 2; k++) { SETTLED(sum0[k]); SETTLED(sum1[k]); SETTLED(sum2[k]); }
      if (lane == 0 && done >= 0) barrier_arrive(empty + 8 * done);
      if (!idle) {
#pragma unroll
        for (int kx = 0; kx < 3; kx++) {
#pragma unroll
          for (int low = 0; low < 2; low++) {
            const int m = warp * 16 + low * 8 + (lane >> 2), lower = work.half && m >= 32 ? 1 : 0;
            const int input = work.block * 64 + m - 32 * lower, row = ky + lower;
            if (row > 2) continue;
            float* to = parts + (((long long)work.split * 9 + row * 3 + kx) * inputs + input) * outputs + work.column * NT + (lane & 3) * 2;
#pragma unroll
            for (int j = 0; j < NT / 8; j++) {
              const int k = j * 4 + low * 2;
              *(float2*)(to + j * 8) = kx == 0   ? make_float2(sum0[k], sum0[k + 1])
                                       : kx == 1 ? make_float2(sum1[k], sum1[k + 1])
                                                 : make_float2(sum2[k], sum2[k + 1]);
            }
          }
        }
      }
    }
  }
}
