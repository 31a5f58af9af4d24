// A tensor-parallel linear layer from C: each of two ranks multiplies its part of the weights' K. The sums over ranks
// overlap with the tiles, and each rank gets its rows of the result.
#include <stdio.h>
#include <stdlib.h>
#include <tilewire/c.h>

enum { RANKS = 2, M = 256, N = 128, K = 64 };

static tilewire_status multiply(tilewire_group* group, tilewire_op* op) {
  // All rows of A and of B, but only this rank's columns of them; this rank's rows of C.
  static float a[M * K / RANKS];
  static float b[N * K / RANKS];
  static float c[M / RANKS * N];
  for (int i = 0; i < M * K / RANKS; ++i) a[i] = (float)(tilewire_rank(group) + 1);
  for (int i = 0; i < N * K / RANKS; ++i) b[i] = 0.5F;

  const tilewire_tensor inputs[] = {{a, TILEWIRE_FP32, M, K / RANKS, K / RANKS},
                                    {b, TILEWIRE_FP32, N, K / RANKS, K / RANKS}};
  const tilewire_tensor output = {c, TILEWIRE_FP32, M / RANKS, N, N};
  const tilewire_status status = tilewire_run_and_wait(op, inputs, 2, &output, 1);
  if (status != TILEWIRE_OK) return status;
  // 32 products of 1 and 0.5 on rank 0, of 2 and 0.5 on rank 1.
  if (c[0] != 48) return tilewire_fail(group, TILEWIRE_WRONG_RESULT, "the product is wrong");
  if (tilewire_rank(group) == 0) printf("%s\nright: %g\n", tilewire_explain(op), c[0]);
  return TILEWIRE_OK;
}

// The body of each rank. Under torchrun or mpirun, tilewire_join gives the group instead of tilewire_launch.
static tilewire_status be_rank(tilewire_group* group, void* user) {
  (void)user;
  const char* problem = "{\"op\": \"gemm_reduce_scatter\", \"m\": 256, \"n\": 128, \"k\": 64, \"dtype\": \"fp32\"}";
  tilewire_op* op = NULL;
  tilewire_status status = tilewire_make_op(group, problem, "auto", &op);
  if (status == TILEWIRE_OK) status = multiply(group, op);
  tilewire_free_op(op);
  return status;
}

int main(void) {
  if (tilewire_launch(RANKS, NULL, be_rank, NULL) == TILEWIRE_OK) return EXIT_SUCCESS;
  fprintf(stderr, "%s: %s\n", tilewire_status_name(tilewire_last_error_status()), tilewire_last_error());
  return EXIT_FAILURE;
}
