#include "cli/plan_memory_json.h"

namespace ringworld {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const ParameterCount& count) {
  return {{"embedding", count.embedding}, {"positions", count.positions},
          {"attention", count.attention}, {"feed_forward", count.mlp},
          {"experts", count.experts},     {"router", count.router},
          {"norms", count.norms},         {"head", count.head},
          {"total", count.total()}};
}

Json json_of(const ItemBytes& items) {
  Json json = Json::object();
  for (std::size_t i = 0; i < memory_item_count; ++i) {
    const auto item = static_cast<MemoryItem>(i);
    json[std::string(name_of(item))] = items[item].value;
  }
  json["states"] = items.states().value;
  json["total"] = items.total().value;
  return json;
}

Json json_of(const MemoryPlan& plan) {
  Json stages = Json::array();
  for (const StageMemory& stage : plan.stages) {
    stages.push_back({{"stage", stage.stage},
                      {"layers", stage.layers},
                      {"parameters", stage.parameters},
                      {"live_chunks", stage.live},
                      {"device", json_of(stage.device)},
                      {"host", json_of(stage.host)},
                      {"file", json_of(stage.file)}});
  }
  return {{"fullest", plan.fullest}, {"stages", std::move(stages)}};
}

Json json_of(const Ledger& ledger, bool peak) {
  Json json = Json::object();
  for (std::size_t c = 0; c < category_count; ++c) {
    const auto category = static_cast<Category>(c);
    json[std::string(name_of(category))] =
        (peak ? ledger.peak_in(category) : ledger.held_in(category)).value;
  }
  json["total"] = (peak ? ledger.total_peak : ledger.total_held).value;
  return json;
}

Json json_of(const std::optional<MemoryAdvice>& advice) {
  return advice ? Json{{"change", advice->change},
                       {"gpus", advice->layout.gpus()},
                       {"device_bytes", advice->device.value}}
                : Json();
}

Json json_of(const ConventionReport& report) {
  Json rows = Json::array();
  for (const ConventionRow& row : report.rows) {
    rows.push_back({{"name", row.name},
                    {"device_bytes", row.device},
                    {"host_bytes", row.host ? Json(*row.host) : Json()},
                    {"arithmetic", row.arithmetic}});
  }
  return {{"title", report.title},
          {"unit", report.unit},
          {"bytes_of_unit", report.bytes_of_unit},
          {"rows", std::move(rows)},
          {"total_bytes", report.total ? Json(*report.total) : Json()},
          {"differences", report.differences}};
}

Json json_of(const PlanVerification& verification) {
  Json items = Json::array();
  for (const Verified& item : verification.items) {
    items.push_back({{"item", item.item},
                     {"planned_bytes", item.planned.value},
                     {"measured_bytes", item.measured.value},
                     {"exact", item.exact},
                     {"holds", item.holds()}});
  }
  return {{"against", verification.against},
          {"holds", verification.holds()},
          {"items", std::move(items)}};
}

}  // namespace

Json json_of(const std::vector<Stated>& stated) {
  Json json = Json::array();
  for (const Stated& value : stated) {
    json.push_back({{"what", value.what}, {"value", value.value}, {"source", value.source}});
  }
  return json;
}

Json json_of(const PlanMemoryResult& r) {
  Json json = {{"schema", "ringworld.plan_memory"},
               {"version", 1},
               {"model", r.setup.model.name},
               {"shape", describe(r.setup.model)},
               {"layout", describe(r.setup.layout)},
               {"gpus", r.setup.layout.gpus()},
               {"accounting", name_of(r.accounting)},
               {"stated", json_of(r.setup.stated)},
               {"parameters", json_of(count_parameters(r.setup.model))},
               {"active_parameters", json_of(count_active_parameters(r.setup.model))},
               {"device_bytes", r.device().value}};
  if (r.setup.budget.value > 0) {
    json["gpu"] = {{"name", r.setup.device},
                   {"bytes", r.setup.budget.value},
                   {"fits", r.device() <= r.setup.budget}};
  }
  if (r.runtime) {
    json["ringworld"] = {{"stage", r.runtime->stage},
                         {"peak_bytes", json_of(r.runtime->device, true)},
                         {"host_bytes", json_of(r.runtime->host, false)},
                         {"file_bytes", json_of(r.runtime->file, false)},
                         {"command", r.command}};
  } else {
    json["plan"] = json_of(r.plan);
    Json changes = Json::array();
    for (const MemoryAdvice& change : r.advice.changes) {
      changes.push_back(json_of(std::optional(change)));
    }
    json["advice"] = {{"changes", std::move(changes)},
                      {"fewest_gpus", json_of(r.advice.as_laid_out)},
                      {"fewest_gpus_frugal", json_of(r.advice.frugal)}};
  }
  if (r.convention) {
    json["convention"] = json_of(*r.convention);
    json["convention"]["fewest_gpus"] = r.lesson_gpus ? Json(*r.lesson_gpus) : Json();
  }
  for (const PlanVerification& verification : r.verifications) {
    json["verify"].push_back(json_of(verification));
  }
  return json;
}

}  // namespace ringworld
