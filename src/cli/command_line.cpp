// The common part of programs with verbs: parsing, and the exit code of an Error.
// Called by main.cpp, and by the main.cpp of studies/.
#include "cli/command_line.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <iostream>

#include "cli/options.hpp"
#include "core/caught.hpp"
#include "core/text.hpp"

namespace tilewire::cli {
namespace {

constexpr int kBadInput = 2;
constexpr int kInternal = 4;

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::wrong_result:
    case ErrorKind::refused_plan:
      return 1;
    case ErrorKind::invalid_input:
    case ErrorKind::unsupported:
      return kBadInput;
    case ErrorKind::rank_lost:
    case ErrorKind::timeout:
      return 3;
    case ErrorKind::internal:
      return kInternal;
  }
  return kInternal;
}

// Otherwise CLI11 asks for a verb if one is misspelt, and prints its own help if --help follows.
void require_known_verb(const CLI::App& app, int argc, char** argv) {
  const auto first = std::find_if(argv + 1, argv + argc, [](const char* text) { return *text != '-'; });
  if (first == argv + argc) return;
  std::string known;
  for (const CLI::App* verb : app.get_subcommands({})) {
    if (verb->get_name() == *first) return;
    known += (known.empty() ? "" : ", ") + verb->get_name();
  }
  fail(ErrorKind::invalid_input, "unknown verb '{}'; known: {}", *first, known);
}

// Open closed standard streams. Otherwise a file or a library gets one of their descriptors, and printed text with it.
void open_closed_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    if (::open("/dev/null", fd == STDIN_FILENO ? O_RDONLY : O_WRONLY) < 0) static_cast<void>(::open("/", O_PATH));
  }
}

}  // namespace

int run_command_line(CLI::App& app, int argc, char** argv) {
  open_closed_streams();
  // So a file that outgrows `ulimit -f`, and a pipe without a reader, give errors with a message.
  for (const int signal : {SIGXFSZ, SIGPIPE}) static_cast<void>(std::signal(signal, SIG_IGN));
  app.set_version_flag("--version", TILEWIRE_VERSION);
  app.require_subcommand(1);
  app.get_formatter()->column_width(28);
  try {
    require_known_verb(app, argc, argv);
    try {
      app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      if (app.exit(error) != 0) return kBadInput;
    }
    print("");
    return 0;
  } catch (const Error& error) {
    std::cerr << app.get_name() << ": " << error.what() << "\n";
    return exit_code(error.kind());
  } catch (...) {
    const Error error = caught_error();
    const bool ours = error.kind() == ErrorKind::internal;
    std::cerr << app.get_name() << ": " << (ours ? "internal error: " : "") << error.what() << "\n";
    return exit_code(error.kind());
  }
}

}  // namespace tilewire::cli
