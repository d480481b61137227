#include "cli/dry_run.h"

#include <algorithm>
#include <functional>
#include <iostream>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/json_file.h"
#include "cli/rank.h"
#include "cli/train_setup.h"
#include "collectives/selection.h"
#include "runtime/cpus.h"
#include "runtime/error.h"
#include "runtime/file_tier.h"
#include "runtime/meta_backend.h"
#include "training/token_stream.h"

namespace ringworld {
namespace {

// Where no data is given, some that is read again and again.
constexpr std::int64_t synthetic_sequences = 64;

NullOptions transport_played(const ResourceOptions& options, int world_size) {
  if (world_size % options.nodes != 0) {
    throw UsageError(
        fmt::format("--nodes: {} nodes do not divide {} ranks", options.nodes, world_size));
  }
  return {.as = options.transport == TransportChoice::mpi || world_size == 1
                    ? NullOptions::As::mpi
                    : NullOptions::As::shared,
          .local_ranks = world_size / options.nodes};
}

// "gradients h.0" and "gradients h.1" are both gradients.
TrafficByLabel by_kind(const TrafficByLabel& traffic) {
  TrafficByLabel kinds;
  for (const auto& [label, of_label] : traffic) {
    const std::string first_word = label.substr(0, label.find(' '));
    static constexpr std::string_view of_strategies[] = {"gradients", "parameters", "tensor",
                                                         "pipeline", "model"};
    const bool is_kind = std::ranges::find(of_strategies, first_word) != std::end(of_strategies);
    Traffic& kind = kinds[is_kind ? first_word : "control"];
    kind.calls += of_label.calls;
    kind.bytes_sent += of_label.bytes_sent;
  }
  return kinds;
}

nlohmann::ordered_json json_of(const Ledger& ledger) {
  nlohmann::ordered_json json;
  for (std::size_t c = 0; c < category_count; ++c) {
    json[std::string(name_of(static_cast<Category>(c)))] = ledger.peak[c].value;
  }
  json["total"] = ledger.total_peak.value;
  return json;
}

nlohmann::ordered_json json_of(const TrainOptions& o, int rank, int world_size,
                               const DryRun& result) {
  nlohmann::ordered_json json = {{"schema", "ringworld.dry_run"},
                                 {"version", 1},
                                 {"conditions",
                                  {{"rank", rank},
                                   {"ranks", world_size},
                                   {"nodes", o.resources.nodes},
                                   {"model", o.model.name},
                                   {"parameters", result.parameters},
                                   {"precision", name_of(o.precision)},
                                   {"strategy", o.strategy.name},
                                   {"mesh", o.mesh ? to_string(*o.mesh) : std::string()},
                                   {"sequence_parallel", o.sequence_parallel},
                                   {"pipeline_schedule", o.pipeline.schedule},
                                   {"chunks", o.pipeline.chunks},
                                   {"global_batch", o.global_batch},
                                   {"micro_batch", o.micro_batch},
                                   {"sequence_length", o.data.sequence_length},
                                   {"checkpoint_activations", to_string(o.recomputation)},
                                   {"offload", name_of(o.offload.what)},
                                   {"offload_to", name_of(o.offload.where)}}},
                                 {"peak_bytes", json_of(result.device)},
                                 {"peak_bytes_at_any_time", result.device_peak.value}};
  if (result.host) {
    json["host_peak_bytes"] = json_of(*result.host);
  }
  if (result.file) {
    json["file_peak_bytes"] = json_of(*result.file);
  }
  if (result.host) {
    json["offload"] = {{"bytes_to_host", result.moved.to_host.value},
                       {"bytes_to_device", result.moved.to_device.value},
                       {"bytes_read_from_file", result.moved.file_read.value},
                       {"bytes_written_to_file", result.moved.file_written.value}};
  }
  json["flops"] = {{"matmul", result.flops.matmul},
                   {"attention_forward", result.flops.attention_forward},
                   {"attention_backward", result.flops.attention_backward},
                   {"total", result.flops.total()}};
  for (const auto& [label, traffic] : result.traffic) {
    json["collectives"].push_back(
        {{"label", label}, {"calls", traffic.calls}, {"bytes_sent", traffic.bytes_sent.value}});
  }
  return json;
}

std::string table_of(const DryRun& result) {
  Table memory({{"peak of a step"},
                {"device", Align::right},
                {"host", Align::right},
                {"file", Align::right}});
  const auto row = [&](const std::string& name, auto peak) {
    const auto text = [&](const std::optional<Ledger>& ledger) {
      return ledger && peak(*ledger).value > 0 ? to_string(peak(*ledger)) : std::string();
    };
    const std::vector<std::string> cells{name, text(result.device), text(result.host),
                                         text(result.file)};
    if (std::ranges::any_of(cells.begin() + 1, cells.end(),
                            [](const std::string& cell) { return !cell.empty(); })) {
      memory.add_row(cells);
    }
  };
  for (std::size_t c = 0; c < category_count; ++c) {
    row(std::string(name_of(static_cast<Category>(c))),
        [c](const Ledger& ledger) { return ledger.peak[c]; });
  }
  row("all at once", [](const Ledger& ledger) { return ledger.total_peak; });

  Table traffic(
      {{"collectives of a step"}, {"calls", Align::right}, {"this rank sends", Align::right}});
  for (const auto& [kind, of_kind] : by_kind(result.traffic)) {
    traffic.add_row({kind, fmt::format("{}", of_kind.calls), to_string(of_kind.bytes_sent)});
  }
  std::string text = fmt::format("{}\n{}\n{} floating-point operations of this rank in a step\n",
                                 memory.text(), traffic.text(), human_count(result.flops.total()));
  if (result.host) {
    text += fmt::format("between device and host: {} down, {} up\n",
                        to_string(result.moved.to_host), to_string(result.moved.to_device));
  }
  if (result.file) {
    text += fmt::format("between host and file: {} written, {} read\n",
                        to_string(result.moved.file_written), to_string(result.moved.file_read));
  }
  return text;
}

// Behind a message.
std::string advice(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) {
    text += fmt::format("; {}", part);
  }
  return text;
}

}  // namespace

Datasets given_or_synthetic_data(const TrainOptions& options, std::int64_t vocabulary) {
  if (!options.data.paths.empty()) {
    return open_datasets(options.data, vocabulary);
  }
  const std::int64_t length = options.data.sequence_length;
  const TokenDataset data = whole_dataset(
      TokenStream::synthetic(vocabulary, synthetic_sequences * length + 1, options.seed), length);
  return {data, data};
}

DryRun dry_run(const TrainOptions& o, int rank, int world_size) {
  const BatchPlan batches = check_training(o, world_size);
  const NullOptions played = transport_played(o.resources, world_size);
  const int threads = o.resources.threads > 0 ? o.resources.threads : default_threads(world_size);
  const auto make_backend = [threads](std::shared_ptr<Device> device) {
    return make_meta_backend(std::move(device), threads);
  };
  const auto device = make_meta_device(o.resources.budget());
  const auto backend = make_backend(device);
  const auto transport = make_null_transport(rank, world_size, played);
  const Selection selection = read_selection(o.resources);
  Communicator communicator(*transport, *backend, communicator_options(o.resources, selection));

  TrainingState state(o, *backend, communicator, make_backend, /*dry_run=*/true);
  const Datasets data = given_or_synthetic_data(o, state.model().vocabulary());
  TrainerOptions options = trainer_options(o, batches);
  options.validation_interval = 0;
  Trainer trainer(state.model(), *backend, state.strategy(), state.optimizer(), *state.mesh(),
                  state.stage(), data, options);

  DryRun result;
  const std::unique_ptr<Model> whole = make_model(o.model, o.precision);
  result.parameters = whole->parameter_count();
  result.device_peak = device->ledger().total_peak;
  trainer.step();  // makes what is made once
  result.device_peak = std::max(result.device_peak, device->ledger().total_peak);
  const TrafficByLabel before = communicator.traffic_by_label();
  const OffloadTraffic moved_before = state.offload_traffic();
  const Flops flops_before = backend->flops();
  result.device = trainer.step().ledger;
  result.moved = state.offload_traffic() - moved_before;
  result.flops = backend->flops() - flops_before;
  for (const auto& [label, traffic] : communicator.traffic_by_label()) {
    const auto earlier = before.find(label);
    const Traffic in_step = earlier == before.end() ? traffic : traffic - earlier->second;
    if (in_step.calls > 0) {
      result.traffic[label] = in_step;
    }
  }
  if (state.host() != nullptr) {
    result.host = state.host()->ledger();
  }
  if (state.file() != nullptr) {
    result.file = state.file()->ledger();
  }
  return result;
}

namespace {

// Of the rank, and of one of each pipeline stage, which hold what their own layers take: the
// highest peak of any.
Bytes highest_peak(const TrainOptions& o, int rank, int world_size) {
  Bytes peak = dry_run(o, rank, world_size).device_peak;
  const MeshShape mesh = parallel_options(o, world_size).mesh;
  for (int stage = 0; mesh.pipeline > 1 && stage < mesh.pipeline; ++stage) {
    peak = std::max(peak, dry_run(o, stage * mesh.tensor, world_size).device_peak);
  }
  return peak;
}

}  // namespace

std::string what_would_fit(const TrainOptions& asked, int rank, int world_size) {
  struct Change {
    std::string text;
    std::function<void(TrainOptions&)> apply;
    bool shards = false;  // over the data ranks
  };
  // What a tier lacks is not a matter of the device.
  TrainOptions without_budgets = asked;
  without_budgets.resources.device_memory = Bytes(0);
  without_budgets.resources.device.clear();
  without_budgets.offload.host_memory = Bytes(0);
  without_budgets.offload.file_memory = Bytes(0);
  std::vector<std::string> needs;
  try {
    const DryRun all = dry_run(without_budgets, rank, world_size);
    const auto need = [&](const std::optional<Ledger>& ledger, Bytes budget,
                          std::string_view option) {
      if (ledger && budget.value > 0 && ledger->total_peak > budget) {
        needs.push_back(fmt::format("{} {} would do", option, to_string(ledger->total_peak)));
      }
    };
    need(all.host, asked.offload.host_memory, "--host-memory");
    need(all.file, asked.offload.file_memory, "--file-memory");
    if (asked.resources.budget().value == 0 || all.device_peak <= asked.resources.budget()) {
      return advice(needs);
    }
  } catch (const Error&) {  // nothing is known then
  }

  // Options that are of the strategy that was asked for go with it.
  const auto strategy = [&asked](const char* name) {
    std::string text = fmt::format("--strategy {}", name);
    if (asked.strategy.reduce_gradients != ReduceGradients::automatic) {
      text += " --reduce-gradients auto";
    }
    if (asked.strategy.shard_group != 0) {
      text += " --shard-group 0";
    }
    return Change{text,
                  [name](TrainOptions& o) {
                    o.strategy.name = name;
                    o.strategy.reduce_gradients = ReduceGradients::automatic;
                    o.strategy.shard_group = 0;
                  },
                  /*shards=*/true};
  };
  const Change checkpoint{"--checkpoint-activations 1", [](TrainOptions& o) {
                            o.recomputation = {.checkpoint = 1};
                            o.model.recompute_attention = false;
                          }};
  const Change micro_batch{"--micro-batch 1", [](TrainOptions& o) { o.micro_batch = 1; }};
  const auto offload = [](Offload what) {
    return Change{fmt::format("--offload {}", name_of(what)),
                  [what](TrainOptions& o) { o.offload.what = what; }};
  };
  const std::vector<std::vector<Change>> candidates = {
      {strategy("zero1")},
      {strategy("zero2")},
      {strategy("fsdp")},
      {checkpoint},
      {micro_batch},
      {offload(Offload::optimizer)},
      {strategy("fsdp"), checkpoint},
      {strategy("fsdp"), checkpoint, micro_batch},
      {strategy("fsdp"), checkpoint, micro_batch, offload(Offload::optimizer)},
      {strategy("fsdp"), checkpoint, micro_batch, offload(Offload::parameters)}};
  constexpr std::size_t named = 3;

  std::vector<std::string> fits;
  std::optional<std::pair<Bytes, std::string>> smallest;
  const bool shares = parallel_options(asked, world_size).mesh.data > 1;
  for (const std::vector<Change>& changes : candidates) {
    TrainOptions tried = asked;
    std::vector<std::string> texts;
    for (const Change& change : changes) {
      if (change.shards && !shares) {
        continue;  // nobody to share with
      }
      change.apply(tried);
      texts.push_back(change.text);
    }
    if (texts.empty()) {
      continue;
    }
    tried.resources.device_memory = Bytes(0);
    tried.resources.device.clear();
    tried.offload.host_memory = Bytes(0);
    try {
      const Bytes peak = highest_peak(tried, rank, world_size);
      const std::string text = fmt::format("{} ({})", fmt::join(texts, " "), to_string(peak));
      if (peak <= asked.resources.budget()) {
        fits.push_back(text);
      }
      if (!smallest || peak < smallest->first) {
        smallest.emplace(peak, text);
      }
    } catch (const Error&) {  // not supported here, so no advice
    }
    if (fits.size() == named) {
      break;
    }
  }
  if (!fits.empty()) {
    needs.push_back(fmt::format("would fit: {}", fmt::join(fits, "; ")));
  } else if (smallest) {
    needs.push_back(
        fmt::format("nothing that was tried would fit; the smallest is {}", smallest->second));
  } else {
    needs.emplace_back("nothing that was tried would fit");
  }
  return advice(needs);
}

ExitCode run_dry(const TrainOptions& o, Transport& transport) {
  const int world_size = o.dry_run.world > 0 ? o.dry_run.world : transport.world_size();
  constexpr int largest_world = 1'000'000;
  if (world_size > largest_world) {
    throw UsageError(fmt::format("--world {}: a dry run plays worlds of at most {} ranks",
                                 world_size, largest_world));
  }
  if (o.dry_run.rank >= world_size) {
    throw UsageError(fmt::format("--rank {} does not exist in a world of {} rank{}; give --world",
                                 o.dry_run.rank, world_size, world_size == 1 ? "" : "s"));
  }
  check_training(o, world_size);
  if (o.offload.where == OffloadTo::file) {
    check_offload_directory(o.offload.path);
  }
  DryRun result;
  try {
    result = dry_run(o, o.dry_run.rank, world_size);
  } catch (const OutOfDeviceMemory& error) {
    throw OutOfDeviceMemory(error.what() + what_would_fit(o, o.dry_run.rank, world_size));
  }
  if (transport.rank() != 0) {
    return ExitCode::ok;
  }
  if (o.dry_run.json != "-") {
    std::cout << fmt::format(
        "dry run of rank {} of {}: {}, {} parameters in {}, {}; nothing was computed or sent\n\n{}",
        o.dry_run.rank, world_size, o.model.name,
        human_count(static_cast<double>(result.parameters)), name_of(o.precision),
        layout_text(o, world_size), table_of(result));
  }
  if (!o.dry_run.json.empty()) {
    write_json(o.dry_run.json, json_of(o, o.dry_run.rank, world_size, result));
  }
  return ExitCode::ok;
}

}  // namespace ringworld
