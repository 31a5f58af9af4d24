// Two ranks add up their matrices tile by tile. Built by a CMake project that knows tilewire only through
// find_package.
#include <cstdio>
#include <tilewire/tilewire.hpp>
#include <vector>

int main() {
  tilewire::launch(2, {}, [](tilewire::Group& group) {
    const int64_t m = 64;
    const int64_t n = 32;
    const tilewire::Problem problem{.op = "all_reduce", .m = m, .n = n, .dtype = tilewire::DType::fp32};
    tilewire::Op op = tilewire::make_op(group, problem, tilewire::Config{.schedule = "sequential"});

    std::vector<float> mine(m * n, static_cast<float>(group.team().rank + 1));
    std::vector<float> sum(m * n);
    const tilewire::Tensor in = tilewire::make_tensor(mine.data(), tilewire::DType::fp32, m, n);
    const tilewire::Tensor out = tilewire::make_tensor(sum.data(), tilewire::DType::fp32, m, n);
    op.run_and_wait({&in, 1}, {&out, 1});
    std::printf("rank %d: 1 + 2 = %g\n", group.team().rank, sum[0]);
  });
}
