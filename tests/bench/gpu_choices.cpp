// Prints what `auto` would measure on GPUs, as JSON: shapes of bench/peers.py, configs of `fused` and `sequential`.
// Run by scripts_test.py, which compares them with bench/candidates.py.
#include "schedules/gpu_choices.hpp"

#include <array>
#include <cstdio>
#include <string>

#include "tilewire/json.hpp"

int main() {
  using tilewire::Problem;
  constexpr std::array<std::array<int64_t, 3>, 21> kShapes{
      {{8192, 49152, 12288}, {4096, 12288, 49152}, {2048, 49152, 12288}, {1024, 12288, 49152}, {512, 49152, 12288},
       {512, 5120, 8192},    {64, 49152, 12288},   {64, 8192, 8192},     {8192, 10240, 8192},  {1024, 8192, 28672},
       {1024, 10240, 8192},  {100, 28672, 8192},   {120, 2560, 8192},    {144, 8192, 28672},   {450, 10240, 8192},
       {300, 10240, 8192},   {600, 8192, 28672},   {1500, 4096, 11008},  {1024, 49152, 12288}, {900, 49152, 1024},
       {1024, 5120, 8192}}};
  nlohmann::json all = nlohmann::json::array();
  for (const char* op : {"all_gather_gemm", "gemm_reduce_scatter", "gemm_all_reduce"}) {
    for (const auto& [m, n, k] : kShapes) {
      for (const int ranks : {2, 4, 8}) {
        const Problem problem{
            .op = op, .m = m, .n = n, .k = k, .dtype = tilewire::DType::bf16, .reduction = tilewire::Reduction::any};
        tilewire::Team team{.num_ranks = ranks};
        team.devices.assign(static_cast<size_t>(ranks), {.sms = 132});
        all.push_back({{"op", op}, {"m", m}, {"n", n}, {"k", k}, {"ranks", ranks}});
        std::vector<tilewire::Config> configs = tilewire::fused_choices(problem, team);
        const std::vector<tilewire::Config> more = tilewire::sequential_choices(problem, team);
        configs.insert(configs.end(), more.begin(), more.end());
        all.back()["configs"] = configs;
      }
    }
  }
  std::puts(all.dump().c_str());
}
