// The table of operators, and the rules that hold for all problems.
// Called by make_plan, the checker, the tuner and the command line.
#include <algorithm>
#include <array>
#include <cmath>

#include "core/json_text.hpp"
#include "core/text.hpp"
#include "operators/all_gather_cols_gemm/all_gather_cols_gemm.hpp"
#include "operators/all_gather_gemm/all_gather_gemm.hpp"
#include "operators/all_reduce/all_reduce.hpp"
#include "operators/gemm_all_reduce/gemm_all_reduce.hpp"
#include "operators/gemm_all_to_all/gemm_all_to_all.hpp"
#include "operators/gemm_all_to_all_rows/gemm_all_to_all_rows.hpp"
#include "operators/gemm_reduce_scatter/gemm_reduce_scatter.hpp"
#include "operators/gemm_reduce_scatter_cols/gemm_reduce_scatter_cols.hpp"
#include "operators/moe/moe.hpp"
#include "operators/moe_combine/moe_combine.hpp"
#include "operators/moe_dispatch/moe_dispatch.hpp"
#include "operators/moe_dispatch_gemm/moe_dispatch_gemm.hpp"
#include "operators/moe_gemm_combine/moe_gemm_combine.hpp"
#include "tilewire/print.hpp"
#include "tilewire/spi/operator.hpp"

namespace tilewire {
namespace {

constexpr int kMaxRanks = 1024;  // limit of plans; backends have lower limits
constexpr int64_t kMaxExtent = int64_t{1} << 31;
constexpr size_t kMostOutputs = 64;
constexpr int64_t kMaxElements = int64_t{1} << 42;

void validate_sizes(const Problem& problem) {
  const auto extent = [](const char* name, int64_t value) {
    require(value >= 0, "{} = {} is negative", name, value);
    require(value <= kMaxExtent, "{} = {} is more than {}", name, value, kMaxExtent);
  };
  extent("m", problem.m);
  extent("n", problem.n);
  extent("k", problem.k);
  for (const int64_t n : problem.more_n) extent("more_n", n);
  extent("n with more_n", all_columns(problem));
  const auto product = [](const char* what, int64_t rows, int64_t cols) {
    require(cols == 0 || rows <= kMaxElements / cols, "{} has {} x {} elements, more than {}: sizes overflow", what,
            rows, cols, kMaxElements);
  };
  product("C (m x n)", problem.m, all_columns(problem));
  product("A (m x k)", problem.m, problem.k);
  product("B (n x k)", columns_of_b(problem, all_columns(problem)), problem.k);
}

void validate_types(const Problem& problem) {
  for (const DType dtype : {problem.dtype, out_dtype_of(problem)}) {
    require(is_number(dtype), "dtype = {}: want fp32, bf16 or fp16", to_string(dtype));
  }
}

void validate_epilogue(const Problem& problem) {
  for (size_t i = 0; i < problem.epilogue.size(); ++i) {
    const EpilogueKind kind = problem.epilogue[i].kind;
    require(kind != EpilogueKind::bias || i == 0, "epilogue: bias is step {}, must be the first", i);
  }
  const auto residuals = std::ranges::count(problem.epilogue, EpilogueKind::residual, &Epilogue::kind);
  require(residuals <= 1, "epilogue: {} residuals, want at most one", residuals);
  if (!joins_columns(problem.epilogue)) return;
  require(problem.epilogue.size() == 1, "epilogue: {} steps with swiglu_pairs, want it alone", problem.epilogue.size());
  require(problem.op == "all_gather_gemm", "epilogue: swiglu_pairs: only all_gather_gemm has it, not {}", problem.op);
}

void validate_norm(const Problem& problem, const Operator& op) {
  if (!problem.norm) return;
  require(leaves_summed_rows(op.structure), "norm: only whole rows of sums are normalised, not the output of {}",
          problem.op);
  // NOTE: backends compute in fp32.
  const auto eps = static_cast<float>(problem.norm->eps);
  require(eps > 0 && std::isfinite(eps), "norm: eps = {}: want more than 0, and a number of fp32", problem.norm->eps);
  require(problem.n > 0, "norm: n = 0: a norm of no columns is undefined");
  const auto& out = problem.norm->out_dtype;
  require(!out || is_quantised(*out), "norm: out_dtype = {}: want fp8_e4m3 or int8", to_string(*out));
  require(!out || problem.norm->kind == NormKind::rms, "norm: out_dtype = {}: a layer norm is not quantised",
          to_string(*out));
}

}  // namespace

std::span<const Operator> operators() {
  static const std::array kTable{all_gather_gemm(),
                                 gemm_reduce_scatter(),
                                 gemm_all_reduce(),
                                 gemm_all_to_all(),
                                 gemm_all_to_all_rows(),
                                 all_gather_cols_gemm(),
                                 gemm_reduce_scatter_cols(),
                                 all_reduce(),
                                 moe(),
                                 moe_dispatch(),
                                 moe_combine(),
                                 moe_dispatch_gemm(),
                                 moe_gemm_combine()};
  return kTable;
}

const Operator& find_operator(const std::string& name) {
  for (const Operator& op : operators()) {
    if (op.name == name) return op;
  }
  std::string known;
  for (const Operator& op : operators()) known += (known.empty() ? "" : ", ") + std::string(op.name);
  fail(ErrorKind::invalid_input, "unknown operator '{}'; known: {}", shown_name(name), known);
}

const Structure& structure_of(const Problem& problem) { return find_operator(problem.op).structure; }

void validate(const Problem& problem, int num_ranks) {
  const Operator& op = find_operator(problem.op);
  require(num_ranks >= 1 && num_ranks <= kMaxRanks, "{} ranks: want 1 to {}", num_ranks, kMaxRanks);
  validate_sizes(problem);
  validate_types(problem);
  validate_epilogue(problem);
  validate_norm(problem, op);
  require(!problem.gathered_output || op.structure.before == Collective::all_gather,
          "gathered_output: {} has no gather", problem.op);
  const bool gathers_a = op.structure.before == Collective::all_gather && op.structure.multiplies;
  require(problem.more_n.empty() || gathers_a, "more_n: only all_gather_* operators have several outputs, {} has one",
          problem.op);
  require(problem.more_n.size() < kMostOutputs, "more_n: {} outputs, at most {}", problem.more_n.size() + 1,
          kMostOutputs);
  require(op.structure.experts || !problem.experts, "experts: {} has none", problem.op);
  op.validate(problem, num_ranks);
  const std::vector<Buffer> buffers = op.buffers(problem, num_ranks);
  for (const std::string& name : problem.arena) {
    const bool known = std::ranges::any_of(buffers, [&](const Buffer& buffer) { return buffer.name == name; });
    require(known, "arena: {} has no buffer '{}'", problem.op, name);
  }
  for (const std::string& name : problem.constant) {
    const auto found = std::ranges::find(buffers, name, &Buffer::name);
    require(found != buffers.end() && found->scope == Scope::input, "constant: {} has no input '{}'", problem.op, name);
  }
}

}  // namespace tilewire
