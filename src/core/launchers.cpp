// Reads the environment variables of launchers and finds contradictions between them.
// Called by the bootstrap and the command line through env.hpp.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <vector>

#include "core/variables.hpp"
#include "tilewire/env.hpp"

namespace tilewire::env {
namespace {

/// An environment variable that is set.
struct Variable {
  const char* name = "";
  std::string text{};
};

std::string in_words(const Variable& variable) { return fmt::format("{}={}", variable.name, variable.text); }

std::optional<Variable> variable(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const auto text = read(name)) return Variable{name, *text};
  }
  return std::nullopt;
}

int number_of(const Variable& variable) { return to_number<int>(variable.name, variable.text); }

/// Whether two variables have the same value; numbers are compared as numbers (1 and 01).
bool same(const Variable& one, const Variable& other) {
  const auto number = [](const Variable& each) {
    int value = 0;
    const char* end = each.text.data() + each.text.size();
    const auto [stop, status] = std::from_chars(each.text.data(), end, value);
    return status == std::errc{} && stop == end ? std::optional(value) : std::nullopt;
  };
  return one.text == other.text || (number(one) && number(one) == number(other));
}

/// The variables of one launcher; those that are not set are empty.
struct Launcher {
  const char* rank_name = "";
  const char* size_name = "";
  std::optional<Variable> rank{};
  std::optional<Variable> size{};
  std::optional<Variable> local_rank{};
  std::optional<Variable> local_size{};
  std::optional<Variable> hosts{};
  bool by_slurm = false;  ///< a SLURM job step; its variables stay set if another launcher starts processes in it

  [[nodiscard]] bool complete() const { return rank && size; }
  [[nodiscard]] bool same_place(const Launcher& other) const {
    return complete() && other.complete() && same(*rank, *other.rank) && same(*size, *other.size);
  }
  /// Whether the launcher started one process on this host. That process may be another launcher with several ranks.
  [[nodiscard]] bool alone() const {
    return size->text == "1" || (local_size && local_size->text == "1") || (hosts && hosts->text == size->text);
  }
  [[nodiscard]] std::string in_words() const {
    return fmt::format("{} and {}", env::in_words(*rank), env::in_words(*size));
  }
};

Launcher read_launcher(const char* rank, const char* size, const char* local_rank, const char* local_size) {
  return {rank, size, variable({rank}), variable({size}), variable({local_rank}), variable({local_size})};
}

bool is_torchrun() { return read("TORCHELASTIC_RUN_ID").has_value(); }

/// All launchers by priority: the first complete one is used.
std::array<Launcher, 4> launchers() {
  std::array<Launcher, 4> all{read_launcher("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
                              read_launcher("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                            "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
                              read_launcher("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"), Launcher{}};
  Launcher& slurm = all.back();
  slurm.by_slurm = true;
  if (!read("SLURM_STEP_ID")) return all;
  slurm.rank = variable({"SLURM_PROCID"});
  slurm.size = variable({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"});
  slurm.local_rank = variable({"SLURM_LOCALID"});
  slurm.hosts = variable({"SLURM_STEP_NUM_NODES", "SLURM_NNODES"});
  // srun sets PMI variables, too.
  all[2].by_slurm = slurm.same_place(all[2]);
  return all;
}

/// Whether this is srun's interactive shell on a compute node, whose job step has no other running task.
bool in_interactive_shell() {
  return read("SLURM_PTY_PORT") && read("SLURM_TASK_PID").value_or("") != fmt::to_string(getpid());
}

void require_real_step(const Launcher& slurm) {
  constexpr const char* kWhy =
      "srun's interactive shell, in which no other rank runs: start ranks by srun or mpirun, or unset SLURM_STEP_ID";
  const auto of_job = variable({"SLURM_NTASKS"});
  require(!of_job || of_job->text == slurm.size->text, "{}, but {}: {}", in_words(*slurm.size),
          of_job ? in_words(*of_job) : "", kWhy);
  require(slurm.size->text == "1" || !in_interactive_shell(), "{}, but SLURM_PTY_PORT={}: {}", slurm.in_words(),
          read("SLURM_PTY_PORT").value_or(""), kWhy);
}

/// Whether `outer` may have started the launcher that started `inner`'s processes.
bool may_be_nested(const Launcher& inner, const Launcher& outer) {
  if (outer.by_slurm && (is_torchrun() || in_interactive_shell())) return true;
  // torchrun has one agent per process of the outer launcher.
  if (is_torchrun() && read("GROUP_WORLD_SIZE") == outer.size->text) return true;
  return outer.alone() && inner.size->text != "1";
}

[[noreturn]] void fail_by_contradiction(const std::string& one, const std::string& other) {
  fail(ErrorKind::invalid_input,
       "{}, but {}: launchers contradict each other; unset the variables of the one that did not start this process",
       one, other);
}

void require_agreement(const std::array<Launcher, 4>& all, const Launcher& chosen) {
  // Find an MPI launcher (possibly started by srun) with the same place.
  const bool confirmed = std::ranges::any_of(
      all, [&](const Launcher& other) { return &other != &chosen && !other.by_slurm && chosen.same_place(other); });
  const bool by_environment = &chosen == &all.front();
  for (const Launcher& other : all) {
    if (!other.complete() || chosen.same_place(other)) continue;
    if (other.by_slurm && (!by_environment || confirmed)) continue;
    if (may_be_nested(chosen, other)) continue;
    fail_by_contradiction(chosen.in_words(), other.in_words());
  }
  // Check RANK or WORLD_SIZE if only one of them is set.
  const Launcher& environment = all.front();
  for (const auto part : {&Launcher::rank, &Launcher::size}) {
    const std::optional<Variable>& alone = environment.*part;
    if (alone && alone->text != (chosen.*part)->text) fail_by_contradiction(in_words(*alone), chosen.in_words());
  }
}

/// The first value of `part` among launchers with the same place. All values must agree.
std::optional<Variable> common(const std::vector<Launcher>& same, std::optional<Variable> Launcher::*part) {
  std::optional<Variable> first;
  for (const Launcher& launcher : same) {
    const std::optional<Variable>& next = launcher.*part;
    if (first && next && next->text != first->text && !is_torchrun()) {
      fail_by_contradiction(in_words(*first), in_words(*next));
    }
    if (!first) first = next;
  }
  return first;
}

void require_one_host(const std::vector<Launcher>& same, const Launcher& chosen) {
  const int size = number_of(*chosen.size);
  if (const auto here = common(same, &Launcher::local_size)) {
    const int count = number_of(*here);
    require(count >= 1 && count <= size, "{} and {}: want 1 to all ranks on this host", in_words(*here),
            in_words(*chosen.size));
    if (count == size) return;
    fail(ErrorKind::unsupported, "the launcher started {} of {} ranks on this host ({}, {}): a team is one host so far",
         count, size, in_words(*here), in_words(*chosen.size));
  }
  const auto hosts = common(same, &Launcher::hosts);
  if (!hosts || size == 1 || number_of(*hosts) <= 1) return;
  fail(ErrorKind::unsupported, "the launcher started {} ranks on {} hosts ({}, {}): a team is one host so far", size,
       hosts->text, in_words(*hosts), in_words(*chosen.size));
}

}  // namespace

std::optional<Place> place() {
  const std::array<Launcher, 4> all = launchers();
  const auto chosen = std::ranges::find_if(all, [](const Launcher& launcher) { return launcher.complete(); });
  if (chosen == all.end()) return std::nullopt;
  const int rank = number_of(*chosen->rank);
  const int size = number_of(*chosen->size);
  if (chosen->by_slurm) require_real_step(all.back());
  require_agreement(all, *chosen);
  std::vector<Launcher> same;
  for (const Launcher& launcher : all) {
    if (chosen->same_place(launcher)) same.push_back(launcher);
  }
  require(size >= 1 && rank >= 0 && rank < size, "{} {} of {} {}: want 0 to {} - 1", chosen->rank->name, rank,
          chosen->size->name, size, chosen->size->name);
  require_one_host(same, *chosen);
  // LOCAL_RANK takes precedence over every launcher: a script may make a different GPU visible to each rank, as number
  // 0.
  const bool shell = chosen->by_slurm && in_interactive_shell();
  const auto local_rank = all[0].local_rank ? all[0].local_rank : common(same, &Launcher::local_rank);
  return Place{rank, size, local_rank ? number_of(*local_rank) : -1,
               fmt::format("{}, {}{}", in_words(*chosen->rank), in_words(*chosen->size),
                           shell ? ": srun's interactive shell; unset SLURM_STEP_ID to start ranks in it" : "")};
}

std::optional<std::string> half_place() {
  for (const Launcher& launcher : launchers()) {
    if (launcher.by_slurm || !(launcher.rank || launcher.size)) continue;
    return fmt::format("{} is not set, but {}", launcher.rank ? launcher.size_name : launcher.rank_name,
                       in_words(launcher.rank ? *launcher.rank : *launcher.size));
  }
  return std::nullopt;
}

}  // namespace tilewire::env
