// Plans for Python: make, lower, prove, simulate, write as JSON and as traces. No group and no GPU is needed.
// Called by module.cpp.
#include <fmt/format.h>

#include <sstream>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "lower/fix_groups.hpp"
#include "tilewire/json.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/spi/backend.hpp"
#include "tilewire/spi/schedule.hpp"

namespace tilewire::python {
namespace {

using Named = std::pair<std::string, std::string>;

template <class Rows>
std::vector<Named> names_of(const Rows& rows) {
  std::vector<Named> names;
  for (const auto& row : rows) names.emplace_back(row.name, row.summary);
  return names;
}

/// Make the plan of a problem (JSON) and a config (JSON or a schedule's name), for the team that `team_for` returns.
template <class TeamFor>
Plan plan_from_text(const std::string& problem_text, const std::string& config, const TeamFor& team_for) {
  const auto problem = from_json_text<Problem>(problem_text);
  const Team team = team_for();
  const bool is_json = config.starts_with('{');
  return make_plan(problem, team, is_json ? from_json_text<Config>(config) : default_config(config, problem, team));
}

Plan plan_for_target(const std::string& problem, const std::string& config, int ranks, const std::string& target) {
  return plan_from_text(problem, config,
                        [&] { return team_of(target.empty() ? host_target() : find_target(target), ranks); });
}

Plan plan_for_machine(const std::string& problem, const std::string& config, int ranks, const std::string& machine) {
  return plan_from_text(problem, config, [&] { return team_of(load_machine(machine), ranks); });
}

std::pair<Plan, std::vector<Named>> lowered(const Plan& plan, const std::string& target, const std::string& after) {
  Lowered made = lower(plan, find_target(target), after);
  std::vector<Named> notes;
  for (const PassNote& note : made.notes) notes.emplace_back(note.pass, note.text);
  return {std::move(made.plan), std::move(notes)};
}

/// Violations (rule, text), bytes of each link, total bytes, and the least bytes that the operator needs.
using Proof = std::tuple<std::vector<Named>, std::vector<std::tuple<int, int, int64_t>>, int64_t, int64_t>;

Proof proof_of(const Plan& plan) {
  const CheckResult result = check(plan);
  Proof proof;
  for (const Violation& violation : result.violations)
    std::get<0>(proof).emplace_back(to_string(violation.rule), violation.text);
  for (const LinkTraffic& link : result.traffic) std::get<1>(proof).emplace_back(link.from, link.to, link.bytes);
  std::get<2>(proof) = result.total_bytes;
  std::get<3>(proof) = result.least_bytes;
  return proof;
}

using Event = std::tuple<int, int, int64_t, int64_t, int64_t, int64_t>;

std::vector<Event> events_of(const Trace& trace) {
  std::vector<Event> events;
  for (const TraceEvent& e : trace.events)
    events.emplace_back(e.lane, e.worker, e.task, e.taken_ns, e.start_ns, e.end_ns);
  return events;
}

std::string chrome_trace(const Trace& trace, const Plan& plan) {
  std::ostringstream text;
  write_chrome_trace(text, plan, trace);
  return text.str();
}

}  // namespace

void bind_plans(nb::module_& module) {
  nb::class_<Plan>(module, "Plan", "What every rank does in one call, as data. See docs/plan.md.")
      .def_static(
          "from_json", [](const std::string& text) { return from_json_text<Plan>(text); }, nb::arg("text"),
          "Read a plan that to_json has written. Raises Error(invalid_input) with the field that is wrong.")
      .def(
          "to_json", [](const Plan& plan) { return to_string(plan); }, "The plan as JSON.")
      .def_prop_ro(
          "op", [](const Plan& plan) { return plan.op; }, "Name of the operator.")
      .def_prop_ro(
          "target", [](const Plan& plan) { return plan.target; },
          "Target that it is lowered for; empty = as the schedule made it.")
      .def_prop_ro("num_ranks", [](const Plan& plan) { return plan.team.num_ranks; })
      .def_prop_ro("num_tasks", [](const Plan& plan) { return num_tasks(plan); })
      .def_prop_ro(
          "symmetric_bytes", [](const Plan& plan) { return symmetric_bytes(plan); },
          "Bytes of symmetric workspace on each rank.")
      .def_prop_ro(
          "local_bytes", [](const Plan& plan) { return local_bytes(plan); }, "Bytes of local workspace on each rank.")
      .def(
          "__eq__", [](const Plan& x, const Plan& y) { return x == y; }, nb::is_operator(),
          nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__", [](const Plan& plan) { return static_cast<int64_t>(hash_of(plan) >> 1); })
      .def("__repr__", [](const Plan& plan) {
        return fmt::format("<tilewire.Plan of {}: {} ranks, {} tasks{}>", plan.op, plan.team.num_ranks, num_tasks(plan),
                           plan.target.empty() ? "" : ", lowered for " + plan.target);
      });
  nb::class_<Trace>(module, "Trace", "What happened in one call, and when.")
      .def_prop_ro("events", &events_of,
                   "(lane, worker, task, taken_ns, start_ns, end_ns) of each task, by lane and time.")
      .def("to_chrome", &chrome_trace, nb::arg("plan"),
           "Chrome trace JSON for ui.perfetto.dev. `plan`: the one that ran (Op.plan), or was simulated.")
      .def("__len__", [](const Trace& trace) { return trace.events.size(); });
  nb::class_<Simulation>(module, "Simulation", "One simulated call.")
      .def_ro("total_ns", &Simulation::total_ns, "Until the last rank has ended.")
      .def_ro("rank_ns", &Simulation::rank_ns, "By rank.")
      .def_ro("units_busy", &Simulation::units_busy, "By device: share of the time in which compute units have tiles.")
      .def_prop_ro(
          "links",
          [](const Simulation& s) {
            std::vector<std::tuple<int, int, int64_t, double>> links;
            for (const LinkLoad& link : s.links) links.emplace_back(link.from, link.to, link.bytes, link.busy);
            return links;
          },
          "(from, to, bytes, share of the time that it is busy) of each link that carried anything.")
      .def_ro("trace", &Simulation::trace);
  const nb::call_guard<nb::gil_scoped_release> without_gil;
  module.def("make_plan", &plan_for_target, nb::arg("problem"), nb::arg("config"), nb::arg("ranks"), nb::arg("target"),
             without_gil);
  module.def("lower", &lowered, nb::arg("plan"), nb::arg("target"), nb::arg("after"), without_gil);
  module.def("check", &proof_of, nb::arg("plan"), without_gil);
  module.def(
      "simulate",
      [](const Plan& plan, const std::string& machine) { return simulate(fix_groups(plan), load_machine(machine)); },
      nb::arg("plan"), nb::arg("machine"), without_gil);
  module.def("machine_plan", &plan_for_machine, nb::arg("problem"), nb::arg("config"), nb::arg("ranks"),
             nb::arg("machine"), without_gil);
  module.def("operators", [] { return names_of(operators()); });
  module.def("schedules", [] { return names_of(schedules()); });
  module.def("machines", &machine_names);
  module.def("targets", [] {
    std::vector<std::string> names;
    for (const Target& target : targets()) names.push_back(target.name);
    return names;
  });
  module.def("backends", [] {
    std::vector<std::pair<std::string, std::optional<std::string>>> rows;
    for (const Backend& backend : backends()) rows.emplace_back(backend.name, backend.unavailable());
    return rows;
  });
}

}  // namespace tilewire::python
