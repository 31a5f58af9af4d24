// The command `tilewire`: its verbs.
// Started by users and scripts.
#include "cli/command_line.hpp"
#include "cli/verbs.hpp"

namespace {

constexpr const char* kFooter = R"(Examples:
  tilewire bench all_gather_gemm gemm_reduce_scatter --model llama3-70b --tokens 512 --trace t.json
  tilewire plan gemm_reduce_scatter -m 512 -n 512 -k 1024 --schedule fused
  tilewire check gemm_all_reduce -m 300 -n 512 -k 512 --ranks 3
  tilewire run gemm_reduce_scatter --input a=A.npy --input b=B.npy --output c=C.npy --verify
  tilewire sim all_gather_gemm -m 8192 -n 49152 -k 12288 --machine h200x4

Exit codes: 0 good, 1 wrong result or refused plan, 2 bad usage or input, 3 lost rank or timeout,
4 internal error.
Environment: RANK and WORLD_SIZE (or mpirun's, SLURM's) make this process one rank of a job;
TILEWIRE_JOB names the job, TILEWIRE_TIMEOUT_S bounds every wait, TILEWIRE_TUNER_FILE is where `auto` remembers.)";

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Compute and collectives that overlap tile by tile", "tilewire");
  app.footer(kFooter);
  tilewire::cli::add_demo(app);
  tilewire::cli::add_bench(app);
  tilewire::cli::add_run(app);
  tilewire::cli::add_plan(app);
  tilewire::cli::add_check(app);
  tilewire::cli::add_info(app);
  tilewire::cli::add_doctor(app);
  tilewire::cli::add_sim(app);
  tilewire::cli::add_report(app);
  return tilewire::cli::run_command_line(app, argc, argv);
}
