// Tensor-parallel linear layer: every rank holds a shard of the tokens and some columns of the weight; the tokens are
// gathered while they are multiplied. The tuner measures the schedules and chooses.
#include <cstdio>
#include <tilewire/tilewire.hpp>
#include <vector>

using namespace tilewire;

int main() {
  const int num_ranks = 2;
  const Problem problem{.op = "all_gather_gemm", .m = 256, .n = 512, .k = 128, .dtype = DType::fp32, .arena = {"a"}};
  launch(num_ranks, {}, [&](Group& group) {
    const int rank = group.team().rank;
    const int64_t rows = shard_of(problem.m, num_ranks, rank).size();
    const int64_t cols = shard_of(problem.n, num_ranks, rank).size();

    // The tokens lie in the arena, where peers can read them in place.
    const Tensor a = group.allocate(DType::fp32, rows, problem.k);
    auto* tokens = static_cast<float*>(a.data);
    for (int64_t i = 0; i < rows * problem.k; ++i) tokens[i] = static_cast<float>(rank + 1);
    std::vector<float> weight(cols * problem.k, 0.5F);
    std::vector<float> result(problem.m * cols);

    Op op = make_op(group, problem);
    const Tensor inputs[] = {a, make_tensor(weight.data(), DType::fp32, cols, problem.k)};
    const Tensor outputs[] = {make_tensor(result.data(), DType::fp32, problem.m, cols)};
    op.run_and_wait(inputs, outputs);

    const float first = result.front();  // rank 0's tokens: 128 products of 1 and 0.5
    const float last = result.back();    // rank 1's tokens: 128 products of 2 and 0.5
    if (first != 64 || last != 128) throw Error(ErrorKind::wrong_result, "the product is wrong");
    if (rank == 0) std::printf("%s\nright: %g and %g\n", op.explain().c_str(), first, last);
  });
}
