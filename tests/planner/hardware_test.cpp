// The machine table and hardware files: every value has a source, and what is wrong in a file is
// named.
#include "planner/hardware.h"

#include <set>

#include <gtest/gtest.h>

#include "runtime/error.h"
#include "runtime/hardware.h"
#include "tests/support/expect_error.h"

namespace ringworld {
namespace {

TEST(Machines, HasEveryAcceleratorOnce) {
  const Machines machines;
  std::set<std::string> names;
  for (const Machine& machine : machines.all()) {
    EXPECT_TRUE(names.insert(machine.name).second) << machine.name;
  }
  for (const Accelerator& accelerator : accelerators()) {
    EXPECT_TRUE(names.contains(std::string(accelerator.name))) << accelerator.name;
  }
  EXPECT_EQ(names.size(), accelerators().size());
}

TEST(Machines, EveryValueHasASourceAndIsPossible) {
  const Machines machines;
  for (const Machine& machine : machines.all()) {
    for (const MachineField& field : machine_fields()) {
      const Constant& constant = machine.*field.member;
      EXPECT_FALSE(constant.source.empty()) << machine.name << " " << field.key;
      if (field.required) {
        EXPECT_GT(constant.value, 0) << machine.name << " " << field.key;
      }
      if (field.unit.starts_with("of ")) {
        EXPECT_LE(constant.value, 1) << machine.name << " " << field.key;
      }
    }
    EXPECT_FALSE(machine.network_source.empty()) << machine.name;
    // Links within a node are faster than cards, or as fast.
    EXPECT_GE(machine.within.value, machine.between.value) << machine.name;
  }
}

TEST(Machines, AnUnknownPriceIsNone) {
  const Machines machines;
  EXPECT_EQ(machines.find("V100-32GB").price.value, 0);
  EXPECT_EQ(machines.find("V100-32GB").price.source, "unknown");
  EXPECT_EQ(machines.find("H800-80GB").price.value, 2);
}

TEST(Machines, NamesTheNearest) {
  const Machines machines;
  expect_error<UsageError>([&] { machines.find("H100"); },
                           {"'H100'", "did you mean H100-80GB or H100-96GB or H100-PCIe-80GB?"});
  EXPECT_EQ(machines.find("h100-80gb").name, "H100-80GB");
}

TEST(HardwareFile, OverridesAndAdds) {
  Machines machines;
  machines.add(R"({"machines": [
      {"name": "H100-80GB", "price": 2.5, "source": "our contract"},
      {"name": "X1-96GB", "like": "H100-80GB", "memory": "96GB", "bf16": 1e15,
       "in_switch": false, "source": "its datasheet"}]})",
               "ours.json");
  EXPECT_EQ(machines.find("H100-80GB").price.value, 2.5);
  EXPECT_EQ(machines.find("H100-80GB").price.source, "ours.json: our contract");
  EXPECT_EQ(machines.find("H100-80GB").bf16.value, 989.5e12);
  const Machine& added = machines.find("X1-96GB");
  EXPECT_EQ(added.memory.value, 96e9);
  EXPECT_EQ(added.bf16.value, 1e15);
  EXPECT_EQ(added.price.value, 2.5);  // as of the row it is like
  EXPECT_FALSE(added.network().in_switch);
  EXPECT_EQ(added.memory.source, "ours.json: its datasheet");
}

struct Bad {
  const char* json;
  std::vector<std::string> said;
};

TEST(HardwareFile, SaysWhatIsWrong) {
  const Bad usage[] = {
      {R"([])", {"f.json", "\"machines\""}},
      {R"({"machines": 1})", {"f.json", "\"machines\""}},
      {R"({"machines": [1]})", {"machines[0]", "no object"}},
      {R"({"machines": [{"source": "s"}]})", {"machines[0]", "\"name\"", "is missing"}},
      {R"({"machines": [{"name": "H100-80GB", "price": 1}]})", {"\"source\"", "is missing"}},
      {R"({"machines": [{"name": "H100-80GB", "prise": 1, "source": "s"}]})",
       {"unknown key \"prise\"", "did you mean price?"}},
      {R"({"machines": [{"name": "H100-80GB", "price": -1, "source": "s"}]})",
       {"\"price\"", "-1", "0 or more"}},
      {R"({"machines": [{"name": "H100-80GB", "bf16": "fast", "source": "s"}]})",
       {"\"bf16\"", "must be a number"}},
      {R"({"machines": [{"name": "H100-80GB", "memory": "80 sheep", "source": "s"}]})",
       {"memory", "80 sheep"}},
      {R"({"machines": [{"name": "H100-80GB", "sustained": 1.5, "source": "s"}]})",
       {"\"sustained\"", "1.5", "at most 1"}},
      {R"({"machines": [{"name": "H100-80GB", "gpus_per_node": 2.5, "source": "s"}]})",
       {"\"gpus_per_node\"", "whole number"}},
      {R"({"machines": [{"name": "H100-80GB", "generation": "turing", "source": "s"}]})",
       {"\"generation\"", "volta"}},
      {R"({"machines": [{"name": "new", "source": "s"}]})", {"\"memory\"", "\"like\""}},
      {R"({"machines": [{"name": "new", "like": "H101", "source": "s"}]})", {"H101", "H100-80GB"}},
      {R"({"machines": [{"name": "H100-80GB", "like": "B200-192GB", "source": "s"}]})",
       {"\"like\"", "is in the table"}}};
  for (const Bad& bad : usage) {
    Machines machines;
    const std::string message =
        expect_error<UsageError>([&] { machines.add(bad.json, "f.json"); }, {});
    for (const std::string& said : bad.said) {
      EXPECT_NE(message.find(said), std::string::npos) << said << " in: " << message;
    }
  }
  Machines machines;
  expect_error<DataError>([&] { machines.add("{", "f.json"); }, {"f.json", "is no JSON"});
  expect_error<DataError>([&] { machines.read("/nowhere/f.json"); }, {"/nowhere/f.json"});
}

TEST(HardwareFile, ARowThatIsWrongChangesNothing) {
  Machines machines;
  EXPECT_THROW(machines.add(R"({"machines": [
      {"name": "H100-80GB", "price": 9, "bf16": 0, "f16": 0, "source": "s"}]})",
                            "f.json"),
               UsageError);
  EXPECT_EQ(machines.find("H100-80GB").price.value, 3.2);
}

}  // namespace
}  // namespace ringworld
