// y[n, h, w, k] = sum over ky, kx, c of x[n, h + ky - 1, w + kx - 1, c] weight[k, ky, kx, c]
//
// A tile is four patches (256 pixels) by NT outputs. Its halo comes in groups of 32 channels, the
// weights of a tap and 32 channels as pack_weights left them; two warpgroups have two patches each.
#if SIDE == 32
#define HALO_ROWS 10
#define HALO_COLUMNS 34
#define HALOS 1
#elif SIDE == 16
#define HALO_ROWS 18
#define HALO_COLUMNS 18
#define HALOS 1
#else
#define HALO_ROWS 10
#define HALO_COLUMNS 10
#define HALOS 4
#endif
#define HALO (HALO_ROWS * HALO_COLUMNS)
#define PIXELS (HALOS * HALO)
// Planes that begin at the same bank would be written one after the other.
#define PLANE (PIXELS + (PIXELS % 8 == 0))
#define X_STAGES 3
#define X_BYTES (PLANE * 64)
#define W_BYTES (NT * 64)
#define W_AT (X_STAGES * X_BYTES)
#define BARRIERS_AT (W_AT + STAGES * W_BYTES)
#define WORKS 4
#define FETCHERS 96
#define PIECES ((PIXELS * 4 + FETCHERS - 1) / FETCHERS)
static_assert(BARRIERS_AT + 16 * (X_STAGES + STAGES + WORKS) + 4 * WORKS == SHARED, "the memory that is asked for");

struct Turn {
  int slot = 0, phase = 0;
  __device__ void next() {
    if (++slot == WORKS) { slot = 0; phase ^= 1; }
  }
};

extern "C" __global__ void __maxnreg__(AT_START)
    convolve(const bf16* __restrict__ x, const bf16* __restrict__ weights, bf16* __restrict__ y,
             int* __restrict__ counter, int tiles, int inputs, int outputs) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const u32 base = shared_address(memory);
  const u32 x_full = base + BARRIERS_AT, x_empty = x_full + 8 * X_STAGES;
  const u32 w_full = x_empty + 8 * X_STAGES, w_empty = w_full + 8 * STAGES;
  const u32 work_full = w_empty + 8 * STAGES, work_empty = work_full + 8 * WORKS;
  volatile int* works = (volatile int*)(memory + BARRIERS_AT + 16 * (X_STAGES + STAGES + WORKS));
  const int thread = threadIdx.x, group = thread >> 7;
  const int channel_groups = inputs / 32, columns = outputs / NT, total = tiles * columns;
  if (thread == 0) {
    for (int s = 0; s < X_STAGES; s++) {
      barrier_init(x_full + 8 * s, FETCHERS);
      barrier_init(x_empty + 8 * s, 8);  // the warps that multiply
    }
    for (int s = 0; s < STAGES; s++) {
      barrier_init(w_full + 8 * s, 1);
      barrier_init(w_empty + 8 * s, 8);
    }
    for (int s = 0; s < WORKS; s++) {
      barrier_init(work_full + 8 * s, 1);
      barrier_init(work_empty + 8 * s, FETCHERS + 8);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    SHOW_WRITES;
  }
  __syncthreads();
  if (group == 0) {
    FEWER_REGISTERS(TO_FETCH);
    if (thread < FETCHERS) {
      // Piece k of this thread: 8 channels of a pixel, always the same one of the halo.
      const int plane = thread & 3;
      int offsets[PIECES];
      u32 present = 0, above = 0, below = 0;
#pragma unroll
      for (int k = 0; k < PIECES; k++) {
        const int pixel = (thread >> 2) + k * (FETCHERS / 4);
        const int halo = pixel / HALO, row = pixel % HALO / HALO_COLUMNS - 1, column = pixel % HALO_COLUMNS - 1;
        offsets[k] = ((halo * SIDE + row) * SIDE + column) * inputs + plane * 8;
        present |= (u32)(pixel < PIXELS && (unsigned)column < SIDE) << k;
        above |= (u32)(row < 0) << k;
        below |= (u32)(row == HALO_ROWS - 2) << k;
      }
      const u32 to = base + (plane * PLANE + (thread >> 2)) * 16;
      int stage = 0, phase = 1;
      for (Turn turn;; turn.next()) {
        barrier_wait(work_full + 8 * turn.slot, turn.phase);
        const int work = works[turn.slot];
        barrier_arrive(work_empty + 8 * turn.slot);
        if (work >= total) break;
        const int tile = work / columns;
        const bf16* from = x + (long long)tile * (256 * inputs);
        u32 inside = present;
        if (SIDE != 32 || tile % 4 == 0) inside &= ~above;
        if (SIDE != 32 || tile % 4 == 3) inside &= ~below;
        for (int g = 0; g < channel_groups; g++, from += 32) {
          barrier_wait(x_empty + 8 * stage, phase);
#pragma unroll
          for (int k = 0; k < PIECES; k++) {
            const bool there = inside >> k & 1;
            if ((k + 1) * FETCHERS <= PIXELS * 4 || (thread >> 2) + k * (FETCHERS / 4) < PIXELS)
              copy16(to + stage * X_BYTES + k * (FETCHERS * 4), there ? from + offsets[k] : x, there);
          }
          arrive_after_copies(x_full + 8 * stage);
          if (++stage == X_STAGES) { stage = 0; phase ^= 1; }
        }
      }
    } else if (thread == FETCHERS) {
      // Also gives out the tiles, one ahead: a program that begins late, or that shares its
      // multiprocessor, takes fewer.
      int stage = 0, phase = 1, work = blockIdx.x;
      Turn turn;
      works[0] = work;
      barrier_arrive(work_full);
      while (work < total) {
        const int next = atomicAdd(counter, 1) + gridDim.x;
        turn.next();
        barrier_wait(work_empty + 8 * turn.slot, turn.phase ^ 1);
        works[turn.slot] = next;
        barrier_arrive(work_full + 8 * turn.slot);
        const unsigned char* from = (const unsigned char*)weights + (long long)(work % columns) * channel_groups * 9 * W_BYTES;
        for (int step = 0; step < channel_groups * 9; step++, from += W_BYTES) {
          barrier_wait(w_empty + 8 * stage, phase);
          copy_bytes(base + W_AT + stage * W_BYTES, from, W_BYTES, w_full + 8 * stage);
          if (++stage == STAGES) { stage = 0; phase ^= 1; }
        }
        work = next;
      }
      // The last program leaves the counters as they were.
      if (atomicAdd(counter + 1, 1) == gridDim.x - 1) counter[0] = counter[1] = 0;
    }
  } else {
    MORE_REGISTERS(TO_MULTIPLY);
    const int warp = thread >> 5 & 3, lane = thread & 31, first = (group - 1) * 2;
#if SIDE == 32
    const int patch0 = first * 8, patch1 = patch0 + 8;
#elif SIDE == 16
    const int patch0 = first / 2 * 8 * HALO_COLUMNS, patch1 = patch0 + 8;
#else
    const int patch0 = first * HALO, patch1 = patch0 + HALO;
#endif
    int x_stage = 0, x_phase = 0, w_stage = 0, w_phase = 0;
    for (Turn turn;; turn.next()) {
      barrier_wait(work_full + 8 * turn.slot, turn.phase);
      const int work = works[turn.slot];
      __syncwarp();
      if (lane == 0) barrier_arrive(work_empty + 8 * turn.slot);
      if (work >= total) break;
      float sum0[NT / 2], sum1[NT / 2];
#pragma unroll
      for (int k = 0; k < NT / 2; k++) sum0[k] = sum1[k] = 0.f;
      int x_done = -1, w_done = -1;
      for (int g = 0; g < channel_groups; g++) {
        barrier_wait(x_full + 8 * x_stage, x_phase);
        SHOW_WRITES;
        const u64 halo = matrix(base + x_stage * X_BYTES, PLANE, HALO_COLUMNS);
#pragma unroll 1
        for (int ky = 0; ky < 3; ky++) {
#pragma unroll
          for (int kx = 0; kx < 3; kx++) {
            barrier_wait(w_full + 8 * w_stage, w_phase);
            const u64 w = matrix(base + W_AT + w_stage * W_BYTES, NT, 8), tap = halo + ky * HALO_COLUMNS + kx;
            MMA_BEGIN;
            mma(sum0, tap + patch0, w);
            mma(sum1, tap + patch1, w);
            mma(sum0, tap + patch0 + 2 * PLANE, w + 2 * NT);
            mma(sum1, tap + patch1 + 2 * PLANE, w + 2 * NT);
            MMA_COMMIT;
            MMA_WAIT(1);  // those before these are done, and what they read is free
            if (lane == 0 && w_done >= 0) barrier_arrive(w_empty + 8 * w_done);
            if (lane == 0 && x_done >= 0) barrier_arrive(x_empty + 8 * x_done);
            w_done = w_stage;
            x_done = -1;
            if (++w_stage == STAGES) { w_stage = 0; w_phase ^= 1; }
          }
        }
        x_done = x_stage;
        if (++x_stage == X_STAGES) { x_stage = 0; x_phase ^= 1; }
      }
      MMA_WAIT(0);
#pragma unroll
      for (int k = 0; k < NT / 2; k++) { SETTLED(sum0[k]); SETTLED(sum1[k]); }
      if (lane == 0) {
        barrier_arrive(w_empty + 8 * w_done);
        barrier_arrive(x_empty + 8 * x_done);
      }
      const int tile = work / columns, output = work % columns * NT;
#pragma unroll
      for (int m = 0; m < 2; m++) {
        const int patch = first + m;
#if SIDE == 32
        const int row = 2 * warp, column = patch * 8 + (lane >> 2);
#elif SIDE == 16
        const int row = patch / 2 * 8 + 2 * warp, column = patch % 2 * 8 + (lane >> 2);
#else
        const int row = patch * 8 + 2 * warp, column = lane >> 2;
#endif
        bf16* to = y + ((long long)tile * 256 + row * SIDE + column) * outputs + output + (lane & 3) * 8;
#pragma unroll
        for (int j = 0; j < NT / 32; j++) {
#pragma unroll
          for (int below = 0; below < 2; below++) {
            // Four lanes have two of 8 outputs each, of four groups; after two exchanges each has a group.
            u32 v[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
              const int k = (j * 4 + i) * 4 + below * 2;
              const float low = m == 0 ? sum0[k] : sum1[k], high = m == 0 ? sum0[k + 1] : sum1[k + 1];
              asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v[i]) : "f"(high), "f"(low));
            }
            const bool odd = lane & 1, upper = lane & 2;
            u32 a = __shfl_xor_sync(~0u, odd ? v[0] : v[1], 1), b = __shfl_xor_sync(~0u, odd ? v[2] : v[3], 1);
            if (odd) { v[0] = a; v[2] = b; } else { v[1] = a; v[3] = b; }
            a = __shfl_xor_sync(~0u, upper ? v[0] : v[2], 2);
            b = __shfl_xor_sync(~0u, upper ? v[1] : v[3], 2);
            if (upper) { v[0] = a; v[1] = b; } else { v[2] = a; v[3] = b; }
            *(uint4*)(to + below * SIDE * outputs + j * 32) = make_uint4(v[0], v[1], v[2], v[3]);
          }
        }
      }
    }
  }
}
