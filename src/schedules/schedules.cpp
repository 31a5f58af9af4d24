// The table of schedules, and the way from a problem and a config to a plan.
// Called by make_op, the tuner, the command line and tests.
#include <array>

#include "core/json_text.hpp"
#include "core/text.hpp"
#include "schedules/fused.hpp"
#include "schedules/knobs.hpp"
#include "schedules/sequential.hpp"
#include "schedules/track_trigger.hpp"
#include "schedules/two_stream.hpp"
#include "tilewire/json.hpp"
#include "tilewire/spi/operator.hpp"
#include "tilewire/spi/schedule.hpp"

namespace tilewire {
namespace {

constexpr int64_t kMaxTiles = int64_t{1} << 20;
constexpr int64_t kMaxChunks = int64_t{1} << 16;

void validate_tile_count(const Problem& problem, const Config& config) {
  const int64_t rows = problem.m / config.tile_m + 1;
  const int64_t cols = all_columns(problem) / config.tile_n + 1 + std::ssize(problem.more_n);
  require(rows <= kMaxTiles / cols, "tile_m = {}, tile_n = {}: about {} x {} tiles are more than {}", config.tile_m,
          config.tile_n, rows, cols, kMaxTiles);
  const int64_t chunks = config.chunk_rows > 0 ? problem.m / config.chunk_rows : 0;
  require(chunks <= kMaxChunks, "chunk_rows = {}: about {} chunks are more than {}", config.chunk_rows, chunks,
          kMaxChunks);
}

}  // namespace

std::span<const Schedule> schedules() {
  static const std::array kTable{sequential(), fused(), two_stream(), track_trigger()};
  return kTable;
}

const Schedule& find_schedule(const std::string& name) {
  std::string known;
  for (const Schedule& schedule : schedules()) {
    if (schedule.name == name) return schedule;
    known += (known.empty() ? "" : ", ") + std::string(schedule.name);
  }
  fail(ErrorKind::invalid_input, "unknown schedule '{}'; known: {}", shown_name(name), known);
}

Config default_config(const std::string& name, const Problem& problem, const Team& team) {
  const Schedule& schedule = find_schedule(name);
  validate(problem, team.num_ranks);
  validate(team);
  const std::vector<Config> candidates = schedule.candidates(problem, team);
  return candidates.empty() ? Config{.schedule = schedule.name} : candidates.front();
}

Plan make_plan(const Problem& problem, const Team& team, const Config& config) {
  validate(problem, team.num_ranks);
  validate(team);
  validate(config);
  validate_tile_count(problem, config);
  const Schedule& schedule = find_schedule(config.schedule);
  if (const auto reason = schedule.refuses(problem, team, config)) {
    fail(ErrorKind::unsupported, "schedule {} cannot do {}: {}", schedule.name, problem.op, *reason);
  }
  Plan plan = schedule.make(problem, team, config);
  set_note(plan, {problem, config});
  return plan;
}

PlanNote note_of(const Plan& plan) {
  require(!plan.note.text.empty(), "the plan has no note of its problem and config");
  return from_json_text<PlanNote>(plan.note.text);
}

void set_note(Plan& plan, const PlanNote& note) {
  plan.op = note.problem.op;
  plan.note.text = to_string(note);
}

}  // namespace tilewire
