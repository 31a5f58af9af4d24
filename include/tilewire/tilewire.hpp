// tilewire: compute-and-collective operators that overlap at tile granularity. Programs include this header.
// A complete program, C = all_gather(A) * B^T on four ranks of this host:
//
//   #include <tilewire/tilewire.hpp>
//   #include <cstdio>
//   #include <vector>
//
//   int main() {
//     using namespace tilewire;
//     const Problem problem{.op = "all_gather_gemm", .m = 512, .n = 1024, .k = 256, .dtype = DType::fp32};
//     launch(4, {}, [&](Group& group) {                      // four processes; this runs on each
//       std::vector<float> a(128 * 256, 1.0F);               // this rank's 512 / 4 rows of A
//       std::vector<float> b(256 * 256, 0.5F);               // this rank's 1024 / 4 columns of B, stored [n, k]
//       std::vector<float> c(512 * 256);                     // this rank's columns of C
//       Op op = make_op(group, problem, Config{.schedule = "fused"});  // no config: measure and choose
//       op.run_and_wait(std::vector{make_tensor(a.data(), DType::fp32, 128, 256),
//                                   make_tensor(b.data(), DType::fp32, 256, 256)},
//                       std::vector{make_tensor(c.data(), DType::fp32, 512, 256)});
//       if (group.team().rank == 0) std::printf("%s\nc[0] = %g, want 128\n", op.explain().c_str(), c[0]);
//     });
//   }
//
// Problem (request) -> Config (choice) -> Plan (tasks of every rank) -> backend -> Trace (times).
#pragma once

// In reading order.
// clang-format off
#include "tilewire/error.hpp"
#include "tilewire/dtype.hpp"
#include "tilewire/tensor.hpp"
#include "tilewire/range.hpp"
#include "tilewire/epilogue.hpp"
#include "tilewire/norm.hpp"
#include "tilewire/team.hpp"
#include "tilewire/problem.hpp"
#include "tilewire/config.hpp"
#include "tilewire/group.hpp"
#include "tilewire/op.hpp"
// Plans, their proof, and traces.
#include "tilewire/body.hpp"
#include "tilewire/plan.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/check.hpp"
#include "tilewire/trace.hpp"
#include "tilewire/env.hpp"
#include "tilewire/print.hpp"
// clang-format on
// Not included: json.hpp; sim/ for the simulator; spi/ for authors of schedules, operators, passes and backends in this
// source tree.
