// The program `tilewire-studies`: papers' claims against the simulator, and studies of many simulations.
// Started by users and scripts.
#include "cli/command_line.hpp"
#include "studies/verbs.hpp"

namespace {

constexpr const char* kFooter = R"(Examples:
  tilewire-studies t3 --json t3.json
  tilewire-studies claims --paper flux,ficco
  tilewire-studies sweep all_reduce --bytes 1MiB --topology ring:8 --sweep links.bandwidth_GBps=50:400:50
  tilewire-studies chakra gemm_reduce_scatter -m 4096 -n 8192 -k 8192 --machine h200x4 --schedule fused --out traces

Exit codes: 0 good, 1 refused plan, 2 bad usage or input, 4 internal error.)";

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Studies in tilewire's simulator: figures of papers, sweeps, traces for ASTRA-sim", "tilewire-studies");
  app.footer(kFooter);
  tilewire::cli::add_t3(app);
  tilewire::cli::add_claims(app);
  tilewire::cli::add_sweep(app);
  tilewire::cli::add_chakra(app);
  return tilewire::cli::run_command_line(app, argc, argv);
}
