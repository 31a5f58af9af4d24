// Machines: the known ones, faults of machines, routes of every topology. Built as the target `unit_sim`.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "backends/sim/known_machines.hpp"
#include "backends/sim/network.hpp"
#include "sim_machines.hpp"
#include "tilewire/error.hpp"
#include "tilewire/json.hpp"
#include "tilewire/sim/sim.hpp"

namespace tilewire {
namespace {

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_input);
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Machines, EachNumberOfAKnownOneHasItsSource) {
  std::vector<std::string> names;
  for (const sim::KnownMachine& known : sim::known_machines()) {
    names.emplace_back(known.name);
    const Machine machine = load_machine(known.name);
    EXPECT_EQ(machine.name, known.name);
    EXPECT_FALSE(machine.summary.empty()) << known.name;
    size_t numbers = 0;
    const nlohmann::json json = nlohmann::json::parse(known.json);
    for (const auto& [part, values] : json.items()) {
      if (!values.is_object() || part == "sources") continue;
      for (const auto& [name, value] : values.items()) {
        ++numbers;
        EXPECT_EQ(machine.sources.count(part + "." + name), 1) << known.name << ": " << part << "." << name;
      }
    }
    EXPECT_EQ(machine.sources.size(), numbers) << known.name << " has a source of something that is not there";
    EXPECT_EQ(from_json_text<Machine>(to_string(machine)), machine);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"a100_nvlink8", "a100_pcie8", "dlrm_torus128", "h200x4", "h800_nvlink8",
                                             "mi210_2node", "mi210x4", "mi300x_mesh8", "t3_ring"}));
}

TEST(Machines, ABadOneIsRefusedByKeyAndReason) {
  const auto refused = [](const std::string& key, const std::string& value) {
    Machine machine = sim_machines::round_numbers(2);
    return message_of([&] {
      set_value(machine, key, value);
      validate(machine);
    });
  };
  EXPECT_EQ(refused("links.bandwidth_GBps", "0"), "machine round: links.bandwidth_GBps = 0: want more than 0");
  EXPECT_EQ(refused("links.latency_ns", "-1"), "machine round: links.latency_ns = -1: want at least 0");
  EXPECT_EQ(refused("links.between_bandwidth_GBps", "-1"),
            "machine round: links.between_bandwidth_GBps = -1: want at least 0")
      << "nor where nothing uses it";
  EXPECT_EQ(refused("memory.bandwidth_GBps", "-3"), "machine round: memory.bandwidth_GBps = -3: want more than 0");
  EXPECT_EQ(refused("compute.efficiency", "1.5"),
            "machine round: compute.efficiency = 1.5: want more than 0 and at most 1");
  EXPECT_EQ(refused("compute.side_units", "2"),
            "machine round: compute.side_units = 2: want 0 to compute.units = 1; change compute.units and "
            "compute.side_units together");
  EXPECT_EQ(refused("compute.tile_efficiency", R"({"8x8": 0})"),
            "machine round: compute.tile_efficiency.8x8 = 0: want more than 0 and at most 1");
  EXPECT_EQ(refused("compute.tile_efficiency", R"({"0x-1": 0.5})"),
            "machine round: compute.tile_efficiency has '0x-1': want a shape of tiles, as 128x128");
  EXPECT_EQ(refused("copy.engines", "0"), "machine round: copy.engines = 0: want 1 to 1048576");
  EXPECT_EQ(refused("links.bandwidth_GBps", "1e308"),
            "machine round: links.bandwidth_GBps = 1e+308: want 0.001 to 1000000000");
  EXPECT_EQ(refused("links.latency_ns", "1e300"), "machine round: links.latency_ns = 1e+300: want 0 to 1000000000");
  EXPECT_EQ(refused("links.unit_bandwidth_GBps", "1e-300"),
            "machine round: links.unit_bandwidth_GBps = 1e-300: want 0.001 to 1000000000");
  EXPECT_EQ(refused("compute.fp32_speed", "1e9"),
            "machine round: compute.fp32_speed = 1000000000: want 1e-06 to 1000000");
  EXPECT_EQ(refused("links.dims", "[2,2]"),
            "machine round: links.dims has 2 sizes, links.topology = fully_connected wants 1");
  EXPECT_EQ(refused("links.dims", "[0]"), "machine round: links.dims has 0: want at least 1");
  EXPECT_EQ(refused("links.dims", "[5000]"), "machine round: links.dims make more than 1024 devices");
  EXPECT_EQ(refused("links.topology", "star"),
            "links.topology: unknown 'star'; known: ring, fully_connected, switched, torus2d, two_level");
  EXPECT_EQ(refused("memory.cache_MiB", "1e300"), "machine round: memory.cache_MiB = 1e+300: want 0 to 1000000000");
  EXPECT_EQ(refused("name.x", "3"), "machine: name has no values to set");
  EXPECT_NE(refused("links.speed", "3").find("unknown field 'speed'; known: topology, dims"), std::string::npos);
  EXPECT_NE(refused("wires.speed", "3").find("unknown field 'wires'"), std::string::npos);
  EXPECT_EQ(refused("links.latency_ns", "fast"), "links.latency_ns: want a number, got \"fast\"");
  EXPECT_NE(refused("controllers.queue", "8").find("unknown field 'controllers'"), std::string::npos);
  EXPECT_EQ(refused("latency_ns", "3"), "machine: 'latency_ns' is no key: want PART.NAME, as links.latency_ns");
}

TEST(Machines, WhatIsSetSaysSoAndNothingIsLeftOut) {
  Machine machine = load_machine("h200x4");
  set_value(machine, "links.topology", "torus2d");
  set_value(machine, "links.dims", "[2,2]");
  validate(machine);
  EXPECT_EQ(num_devices(machine), 4);
  EXPECT_EQ(machine.sources.at("links.dims"), "set by the user");
  const nlohmann::json all = load_machine("t3_ring");
  EXPECT_EQ(all["overheads"]["launch_ns"], 0);
  EXPECT_EQ(all["links"]["forwarding"], "cut_through");
}

TEST(Machines, AFileIsReadAsStrictly) {
  const std::string path = ::testing::TempDir() + "machine.json";
  const auto loaded = [&](const std::string& text) {
    std::ofstream(path) << text;
    return message_of([&] { static_cast<void>(load_machine(path)); });
  };
  EXPECT_NE(loaded("").find("malformed JSON"), std::string::npos);
  EXPECT_NE(loaded("{").find("malformed JSON"), std::string::npos);
  EXPECT_NE(loaded(R"({"link": {}})").find("unknown field 'link'"), std::string::npos);
  EXPECT_NE(loaded(R"({"links": {"dims": [2]}})").find("compute.units is missing: every machine has it"),
            std::string::npos);
  EXPECT_NE(loaded(R"({"links": {"latency_ns": NaN}})").find("JSON has no NaN and no Infinity"), std::string::npos);
  EXPECT_EQ(loaded(R"({"links": {"dims": [2], "latency_ns": 1, "latency_ns": 2}})"),
            path + ": machine: key \"latency_ns\" appears twice in one object");
  for (const char* key : {"links.speed", "links", "controller.queue", "sources.x"}) {
    nlohmann::json machine = sim_machines::round_numbers(2);
    machine["sources"][key] = "guessed";
    EXPECT_EQ(loaded(machine.dump()), path + ": machine round: sources has '" + key + "': the machine has no such key");
  }
  EXPECT_NE(
      message_of([] { static_cast<void>(load_machine("nowhere.json")); }).find("the known machines are a100_nvlink8"),
      std::string::npos);
  std::ofstream(path) << to_string(sim_machines::round_numbers(3));
  EXPECT_EQ(num_devices(load_machine(path)), 3);
  EXPECT_EQ(load_machine(path).name, "round");
  Machine nameless = sim_machines::round_numbers(3);
  nameless.name.clear();
  std::ofstream(path) << to_string(nameless);
  EXPECT_EQ(load_machine(path).name, "machine") << "as its file";
}

// Remove every key of every known machine, and set it to wrong values: the machine loads, or the message names the key.
TEST(Machines, AMissingOrWrongKeyIsNamed) {
  const std::string path = ::testing::TempDir() + "wrong.json";
  const nlohmann::json wrong[] = {nullptr, 0, -1, 1e30, "text", nlohmann::json::array(), true, 1, 1e-3};
  const auto check = [&](const nlohmann::json& machine, const std::string& key) {
    std::ofstream(path) << machine.dump();
    const std::string message = message_of([&] { static_cast<void>(load_machine(path)); });
    EXPECT_TRUE(message == "nothing was thrown" || message.find(key) != std::string::npos) << key << ": " << message;
  };
  for (const std::string& name : machine_names()) {
    nlohmann::json all = load_machine(name);
    all.erase("sources");
    for (const auto& [part, values] : all.items()) {
      if (!values.is_object()) continue;
      for (const auto& [key, value] : values.items()) {
        nlohmann::json machine = all;
        for (const nlohmann::json& each : wrong) {
          machine[part][key] = each;
          check(machine, part + "." + key);
        }
        machine[part].erase(key);
        check(machine, part + "." + key);
      }
    }
  }
}

TEST(Machines, ACallThatTakesMonthsNamesTheSlowestValues) {
  Machine machine = sim_machines::round_numbers(2);
  const Plan plan = collective_plan(Collective::all_reduce, CollectiveAlgorithm::direct, int64_t{1} << 50, machine);
  EXPECT_GT(simulate(plan, machine).total_ns, 0);
  set_value(machine, "links.store_efficiency", "1e-6");
  set_value(machine, "links.bandwidth_GBps", "0.001");
  set_value(machine, "overheads.collective_efficiency", "1e-5");
  EXPECT_EQ(
      message_of([&] { static_cast<void>(simulate(plan, machine)); }),
      "machine round: the call takes more than 92 days; the slowest of its values: links.store_efficiency = 1e-06, "
      "links.bandwidth_GBps = 0.001, overheads.collective_efficiency = 1e-05");
}

TEST(Machines, ABareNetworkIsNamedByKindAndSize) {
  EXPECT_EQ(num_devices(bare_network("torus2d:4x3")), 12);
  EXPECT_EQ(bare_network("switch:16").links.topology, Topology::switched);
  const std::string path = ::testing::TempDir() + "network.json";
  for (const char* name : {"ring:8", "fully_connected:8", "switch:16", "torus2d:4x4", "two_level:2x4"}) {
    std::ofstream(path) << to_string(bare_network(name));
    EXPECT_EQ(load_machine(path), bare_network(name)) << "what is written can be read";
  }
  for (const char* bad :
       {"ring", "ring:", "ring:x", "ring:4x4", "torus2d:4", "star:4", "ring:-3", "ring:9999999", "ring:0"}) {
    EXPECT_NE(message_of([&] { static_cast<void>(bare_network(bad)); }), "nothing was thrown") << bad;
  }
  EXPECT_EQ(message_of([] { static_cast<void>(bare_network("mesh:4")); }),
            "topology mesh:4: 'mesh' is none of ring, fully_connected, switch, torus2d, two_level");
  EXPECT_EQ(message_of([] { static_cast<void>(bare_network("ring:x")); }),
            "topology ring:x: 'x' is no size: want numbers of devices, as 8 or 4x4");
}

/// Devices and switches on the way, the last one included.
std::vector<int> way(const std::string& network, int from, int to) {
  const sim::Network net(bare_network(network).links);
  std::vector<int> stops;
  for (const int edge : net.route(from, to)) stops.push_back(net.edges()[edge].to);
  return stops;
}

TEST(Machines, RoutesAreTheShortest) {
  using Way = std::vector<int>;
  EXPECT_EQ(way("ring:6", 0, 2), (Way{1, 2}));
  EXPECT_EQ(way("ring:6", 0, 5), (Way{5}));
  EXPECT_EQ(way("ring:6", 1, 4), (Way{2, 3, 4})) << "as far either way: ahead";
  EXPECT_EQ(way("ring:2", 1, 0), (Way{0}));
  EXPECT_EQ(way("ring:1", 0, 0), (Way{}));
  EXPECT_EQ(way("fully_connected:4", 3, 1), (Way{1}));
  EXPECT_EQ(way("switch:4", 3, 1), (Way{4, 1}));
  EXPECT_EQ(way("torus2d:3x4", 0, 11), (Way{3, 11})) << "columns first, both around the corner";
  EXPECT_EQ(way("torus2d:2x2", 0, 3), (Way{1, 3}));
  EXPECT_EQ(way("two_level:2x3", 0, 2), (Way{2}));
  EXPECT_EQ(way("two_level:2x3", 0, 4), (Way{6, 4}));
}

TEST(Machines, AnExchangeTakesItsBusiestLink) {
  EXPECT_DOUBLE_EQ(exchange_ns(bare_network("switch:4"), 4, 3000).value(), 30) << "all of it leaves by one link";
  EXPECT_DOUBLE_EQ(exchange_ns(bare_network("fully_connected:4"), 4, 3000).value(), 10) << "a third of it on each";
  EXPECT_DOUBLE_EQ(exchange_ns(bare_network("two_level:2x2"), 4, 3000).value(), 20)
      << "two thirds go to the other node";
  EXPECT_FALSE(exchange_ns(bare_network("ring:4"), 4, 3000).has_value());
  EXPECT_FALSE(exchange_ns(bare_network("switch:4"), 1, 0).has_value());
}

TEST(Machines, SettingAValueOfAControllerGivesAMachineOne) {
  Machine machine = load_machine("mi210x4");
  EXPECT_FALSE(machine.controller);
  set_value(machine, "controller.queue", "8");
  ASSERT_TRUE(machine.controller);
  EXPECT_EQ(machine.controller->queue, 8);
  EXPECT_EQ(machine.controller->bank_groups, 4);
  validate(machine);
  Machine faster = load_machine("h200x4");
  set_value(faster, "controller.channels", "64");
  validate(faster);
}

TEST(Machines, ABadMemoryControllerOrTrackerIsRefused) {
  const auto refused = [](const std::string& key, const std::string& value) {
    Machine machine = load_machine("t3_ring");
    return message_of([&] {
      set_value(machine, key, value);
      validate(machine);
    });
  };
  EXPECT_EQ(refused("controller.channels", "0"), "machine t3_ring: controller.channels = 0: want at least 1");
  EXPECT_EQ(refused("controller.queue", "-1"), "machine t3_ring: controller.queue = -1: want at least 1");
  EXPECT_EQ(refused("controller.request_bytes", "16"),
            "machine t3_ring: controller.request_bytes = 16: want at least controller.column_bytes = 32");
  EXPECT_EQ(refused("controller.update_clocks", "1"),
            "machine t3_ring: controller.update_clocks = 1: want at least controller.column_clocks = 2");
  EXPECT_EQ(refused("controller.thresholds", "[0]"), "machine t3_ring: controller.thresholds = 0: want at least 1");
  EXPECT_EQ(refused("controller.thresholds", "[30,10]"),
            "machine t3_ring: controller.thresholds = [30, 10]: want the lowest first, none twice");
  EXPECT_EQ(refused("controller.clock_GHz", "0"), "machine t3_ring: controller.clock_GHz = 0: want more than 0");
  EXPECT_EQ(refused("controller.arbitration", "fair"),
            "controller.arbitration: unknown 'fair'; known: round_robin, compute_first, communication_aware");
  EXPECT_EQ(refused("controller.channels", "2000000000"),
            "machine t3_ring: controller.channels = 2000000000: want at most 1048576");
  EXPECT_EQ(refused("memory.bandwidth_GBps", "4000"),
            "machine t3_ring: memory.bandwidth_GBps = 4000: the controller's bank groups provide only 2048 GB/s; "
            "controller.channels = 32, controller.bank_groups = 4, controller.column_bytes = 32, "
            "controller.column_clocks = 2, controller.clock_GHz = 1");
  EXPECT_NE(refused("memory.bandwidth_GBps", "1e-3").find("of a channel's bus: want at most"), std::string::npos);
  EXPECT_EQ(refused("tracker.entries", "0"), "machine t3_ring: tracker.entries = 0: want 1 to 1048576");
  EXPECT_EQ(refused("tracker.ways", "257"), "machine t3_ring: tracker.ways = 257: want 1 to 256");
  EXPECT_EQ(refused("tracker.entries", "100"),
            "machine t3_ring: tracker.entries = 100: want a power of two, as low bits of workgroups choose one");
  EXPECT_EQ(refused("links.forwarding", "store_and_forward"),
            "machine t3_ring: links.forwarding = store_and_forward: a memory controller wants cut_through");
}

TEST(Machines, ATeamHasTheMachinesLinks) {
  const Team team = team_of(load_machine("h200x4"), 3);
  EXPECT_EQ(team.num_ranks, 3);
  EXPECT_EQ(team.devices[2].sms, 132);
  EXPECT_EQ(link_between(team, 0, 2).bandwidth_GBps, 389);
  EXPECT_DOUBLE_EQ(link_between(team, 0, 2).latency_us, 0.7);
  EXPECT_EQ(team_of(load_machine("mi210_2node"), 2).devices[1].node, 1);
  EXPECT_THROW(static_cast<void>(team_of(load_machine("h200x4"), 5)), Error);
}

}  // namespace
}  // namespace tilewire
