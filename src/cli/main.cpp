// The command line: verbs, and what an Error means for the exit code.
// Started by users and scripts.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <iostream>

#include "cli/options.hpp"
#include "cli/verbs.hpp"
#include "core/caught.hpp"
#include "core/text.hpp"

namespace {

constexpr int kBadInput = 2;
constexpr int kInternal = 4;

int exit_code(tilewire::ErrorKind kind) {
  switch (kind) {
    case tilewire::ErrorKind::wrong_result:
    case tilewire::ErrorKind::refused_plan:
      return 1;
    case tilewire::ErrorKind::invalid_input:
    case tilewire::ErrorKind::unsupported:
      return kBadInput;
    case tilewire::ErrorKind::rank_lost:
    case tilewire::ErrorKind::timeout:
      return 3;
    case tilewire::ErrorKind::internal:
      return kInternal;
  }
  return kInternal;
}

// CLI11 asks for a verb where one is misspelt, and prints its own help where --help follows.
void require_known_verb(const CLI::App& app, int argc, char** argv) {
  const auto first = std::find_if(argv + 1, argv + argc, [](const char* text) { return *text != '-'; });
  if (first == argv + argc) return;
  std::string known;
  for (const CLI::App* verb : app.get_subcommands({})) {
    if (verb->get_name() == *first) return;
    known += (known.empty() ? "" : ", ") + verb->get_name();
  }
  tilewire::fail(tilewire::ErrorKind::invalid_input, "unknown verb '{}'; known: {}", *first, known);
}

constexpr const char* kMainFooter = R"(Examples:
  tilewire bench all_gather_gemm gemm_reduce_scatter --model llama3-70b --tokens 512 --trace t.json
  tilewire plan gemm_reduce_scatter -m 512 -n 512 -k 1024 --schedule fused
  tilewire check gemm_all_reduce -m 300 -n 512 -k 512 --ranks 3
  tilewire run gemm_reduce_scatter --input a=A.npy --input b=B.npy --output c=C.npy --verify
  tilewire sim all_gather_gemm -m 8192 -n 49152 -k 12288 --machine h200x4

Exit codes: 0 good, 1 wrong result or refused plan, 2 bad usage or input, 3 lost rank or timeout,
4 internal error.
Environment: RANK and WORLD_SIZE (or mpirun's, SLURM's) make this process one rank of a job;
TILEWIRE_JOB names the job, TILEWIRE_TIMEOUT_S bounds every wait, TILEWIRE_TUNER_FILE is where `auto` remembers.)";

// Files, and what other libraries open, would else get the numbers of closed standard streams, and what is printed.
void open_closed_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    if (::open("/dev/null", fd == STDIN_FILENO ? O_RDONLY : O_WRONLY) < 0) static_cast<void>(::open("/", O_PATH));
  }
}

}  // namespace

int main(int argc, char** argv) {
  open_closed_streams();
  // A file that outgrows `ulimit -f`, and a pipe without a reader, are then errors with words.
  for (const int signal : {SIGXFSZ, SIGPIPE}) static_cast<void>(std::signal(signal, SIG_IGN));
  CLI::App app("Compute and collectives that overlap tile by tile", "tilewire");
  app.set_version_flag("--version", TILEWIRE_VERSION);
  app.footer(kMainFooter);
  app.require_subcommand(1);
  app.get_formatter()->column_width(28);
  tilewire::cli::add_demo(app);
  tilewire::cli::add_bench(app);
  tilewire::cli::add_run(app);
  tilewire::cli::add_plan(app);
  tilewire::cli::add_check(app);
  tilewire::cli::add_info(app);
  tilewire::cli::add_doctor(app);
  tilewire::cli::add_sim(app);
  tilewire::cli::add_report(app);
  try {
    require_known_verb(app, argc, argv);
    try {
      app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      if (app.exit(error) != 0) return kBadInput;
    }
    tilewire::cli::print("");
    return 0;
  } catch (const tilewire::Error& error) {
    std::cerr << "tilewire: " << error.what() << "\n";
    return exit_code(error.kind());
  } catch (...) {
    const tilewire::Error error = tilewire::caught_error();
    const bool ours = error.kind() == tilewire::ErrorKind::internal;
    std::cerr << "tilewire: " << (ours ? "internal error: " : "") << error.what() << "\n";
    return exit_code(error.kind());
  }
}
