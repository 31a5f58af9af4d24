// The winners that tilewire ships: the fastest configs of measured rows, for machines with two and four GPUs.
// Called by tuner.cpp.
#include "tuner/shipped.hpp"

#include <algorithm>

#include "core/json_text.hpp"
#include "core/text.hpp"
#include "tilewire/json.hpp"
#include "tuner/shipped_tables.hpp"

namespace tilewire::tuner {
namespace {

std::vector<ShippedWinner> read_tables() {
  constexpr int kSms = 132;
  std::vector<ShippedWinner> all;
  for (const ShippedTable& table : shipped_tables()) {
    const nlohmann::json json = parse_json(table.text, table.name);
    const std::string hardware =
        fmt::format("{} x {}, {} SMs", json.at("ranks").get<int>(), json.at("gpu").get<std::string>(), kSms);
    for (const nlohmann::json& row : json.at("rows")) {
      Problem problem{.op = row.at("op"), .m = row.at("m"), .n = row.at("n"), .k = row.at("k")};
      problem.dtype = json.at("dtype").get<DType>();
      problem.arena = row.value("arena", std::vector<std::string>());
      all.push_back({table.name, hardware, problem, row.at("config").get<Config>(), row.at("us")});
    }
  }
  return all;
}

/// A problem with the same calls, as rows of the tables have it.
Problem as_measured(const Problem& problem) {
  constexpr int64_t kRows = 8;
  Problem same = problem;
  same.m = (problem.m + kRows - 1) / kRows * kRows;
  if (out_dtype_of(problem) == problem.dtype) same.out_dtype.reset();
  if (same.dtype == DType::fp16) same.dtype = DType::bf16;
  if (same.dtype == DType::bf16) same.allow_tf32 = false;
  same.reduction = Problem{}.reduction;
  same.constant.clear();
  return same;
}

}  // namespace

const std::vector<ShippedWinner>& shipped_winners() {
  static const std::vector<ShippedWinner> kAll = read_tables();
  return kAll;
}

const ShippedWinner* find_shipped(const Target& target, const Problem& problem) {
  if (!target.streams || !target.whole_gpu) return nullptr;
  const Problem wanted = as_measured(problem);
  const auto found = std::ranges::find_if(shipped_winners(), [&](const ShippedWinner& each) {
    return each.table == target.name && as_measured(each.problem) == wanted;
  });
  return found == shipped_winners().end() ? nullptr : &*found;
}

}  // namespace tilewire::tuner
