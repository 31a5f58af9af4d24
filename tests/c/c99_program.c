// Every function of the C interface that ranks call without errors, from C99.
// Started by ctest with "processes" or "threads".
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tilewire/c.h>

enum { RANKS = 3, M = 50, N = 37, K = 29 };

// End the function with the status of a failed call.
#define TRY(call)                                     \
  do {                                                \
    const tilewire_status try_status = (call);        \
    if (try_status != TILEWIRE_OK) return try_status; \
  } while (0)

// Unless the condition holds, end the function and inform the other ranks.
#define WANT(group, condition)                                                                \
  do {                                                                                        \
    if (!(condition)) return tilewire_fail(group, TILEWIRE_WRONG_RESULT, "not: " #condition); \
  } while (0)

// The ceiling rule of docs/operators.md.
static int64_t shard_begin(int64_t extent, int rank) {
  const int64_t begin = (extent + RANKS - 1) / RANKS * rank;
  return begin < extent ? begin : extent;
}

static int64_t shard_size(int64_t extent, int rank) {
  return shard_begin(extent, rank + 1) - shard_begin(extent, rank);
}

// Small integers, whose sums are exact in fp32.
static float a_at(int64_t row, int64_t k) { return (float)((row * 3 + k * 5) % 7 - 3); }
static float b_at(int64_t col, int64_t k) { return (float)((col * 2 + k) % 5 - 2); }

static float product_at(int64_t row, int64_t col) {
  float sum = 0;
  for (int64_t k = 0; k < K; ++k) sum += a_at(row, k) * b_at(col, k);
  return sum;
}

// GEMM + ReduceScatter. a and b are the shards of K; the output is in the arena, and poisoned first.
static tilewire_status run_reduce_scatter(tilewire_group* group, tilewire_op* op, float* a, float* b) {
  const int rank = tilewire_rank(group);
  const int64_t my_k = shard_size(K, rank);
  const int64_t my_rows = shard_size(M, rank);
  for (int64_t k = 0; k < my_k; ++k) {
    for (int64_t row = 0; row < M; ++row) a[row * my_k + k] = a_at(row, shard_begin(K, rank) + k);
    for (int64_t col = 0; col < N; ++col) b[col * my_k + k] = b_at(col, shard_begin(K, rank) + k);
  }
  tilewire_tensor c;
  TRY(tilewire_allocate(group, TILEWIRE_FP32, (M + RANKS - 1) / RANKS, N, &c));
  WANT(group, c.data != NULL && c.row_stride == N && ((float*)c.data)[0] == 0);
  memset(c.data, 0x7f, sizeof(float) * (size_t)(c.rows * N));
  tilewire_tensor mine = c;
  mine.rows = my_rows;
  const tilewire_tensor inputs[] = {{a, TILEWIRE_FP32, M, my_k, my_k}, {b, TILEWIRE_FP32, N, my_k, my_k}};
  TRY(tilewire_run(op, inputs, 2, &mine, 1, NULL));
  TRY(tilewire_wait(op));
  TRY(tilewire_run_and_wait(op, inputs, 2, &mine, 1));

  tilewire_status status = TILEWIRE_INTERNAL;
  const char* text = NULL;
  TRY(tilewire_last_status(op, &status, &text));
  WANT(group, status == TILEWIRE_OK && strcmp(text, "") == 0);
  float* seen = malloc(sizeof(float) * (size_t)(my_rows * N));
  WANT(group, seen != NULL);
  TRY(tilewire_copy(group, seen, c.data, (int64_t)sizeof(float) * my_rows * N));
  int right = 1;
  for (int64_t i = 0; i < my_rows * N; ++i) {
    right = right && seen[i] == product_at(shard_begin(M, rank) + i / N, i % N);
  }
  free(seen);
  WANT(group, right);
  TRY(tilewire_free(group, &c));
  WANT(group, c.data == NULL);
  return TILEWIRE_OK;
}

static tilewire_status check_facts(tilewire_group* group) {
  WANT(group, tilewire_num_ranks(group) == RANKS);
  WANT(group, tilewire_rank(group) >= 0 && tilewire_rank(group) < RANKS);
  WANT(group, strcmp(tilewire_backend(group), "host") == 0);
  WANT(group, strcmp(tilewire_status_name(TILEWIRE_RANK_LOST), "rank_lost") == 0);
  WANT(group, strlen(tilewire_version()) >= 5);
  return tilewire_barrier(group);
}

static tilewire_status be_rank(tilewire_group* group, void* user) {
  const char* const configs[] = {"sequential", "fused", "{\"schedule\": \"fused\", \"tile_m\": 16, \"tile_n\": 32}",
                                 "auto", NULL};
  char problem[200];
  snprintf(problem, sizeof problem,
           "{\"op\": \"gemm_reduce_scatter\", \"m\": %d, \"n\": %d, \"k\": %d, \"dtype\": \"fp32\"}", M, N, K);
  TRY(check_facts(group));
  float* a = malloc(sizeof(float) * M * K);
  float* b = malloc(sizeof(float) * N * K);
  tilewire_status status = TILEWIRE_OK;
  for (size_t i = 0; i < sizeof configs / sizeof *configs && status == TILEWIRE_OK; ++i) {
    tilewire_op* op = NULL;
    status = tilewire_make_op(group, problem, configs[i], &op);
    int64_t symmetric = 0;
    int64_t local = 0;
    if (status == TILEWIRE_OK) status = tilewire_workspace(op, &symmetric, &local);
    if (status == TILEWIRE_OK && symmetric + local <= 0)
      return tilewire_fail(group, TILEWIRE_WRONG_RESULT, "no workspace");
    for (int call = 0; call < 3 && status == TILEWIRE_OK; ++call) status = run_reduce_scatter(group, op, a, b);
    if (status == TILEWIRE_OK && (strstr(tilewire_explain(op), "gemm_reduce_scatter") == NULL ||
                                  (i == 2 && strstr(tilewire_config(op), "\"tile_m\":16") == NULL))) {
      status = tilewire_fail(group, TILEWIRE_WRONG_RESULT, tilewire_explain(op));
    }
    tilewire_free_op(op);
  }
  free(a);
  free(b);
  if (status == TILEWIRE_OK && tilewire_rank(group) == 0) printf("%s\n", (const char*)user);
  return status;
}

int main(int argc, char** argv) {
  tilewire_launch_options options = {.size = sizeof options};
  options.threads = argc > 1 && strcmp(argv[1], "threads") == 0;
  options.arena_bytes = 64 << 20;
  char word[] = "right";
  if (tilewire_launch(RANKS, &options, be_rank, word) != TILEWIRE_OK) {
    fprintf(stderr, "%s: %s\n", tilewire_status_name(tilewire_last_error_status()), tilewire_last_error());
    return 1;
  }
  return 0;
}
