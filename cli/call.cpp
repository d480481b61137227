// ringworld call: one collective on given values, for learning and for checking by hand.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json_file.h"
#include "cli/rank.h"
#include "runtime/error.h"

namespace ringworld {
namespace {

using Json = nlohmann::ordered_json;
using Counts = Communicator::Counts;

// What each rank gives, checked: values[rank], and for all_to_all how they are cut.
struct Input {
  std::vector<std::vector<double>> values;
  std::vector<Counts> send_counts;  // all_to_all with lists; else empty
};

[[noreturn]] void refuse(const std::string& why) {
  throw UsageError("--values: " + why);
}

// JSON has no numbers that are not finite; they are written as text.
double number_of(const Json& json, int rank, DType dtype) {
  double value = 0;
  if (json == "nan") {
    value = std::numeric_limits<double>::quiet_NaN();
  } else if (json == "inf" || json == "-inf") {
    value = (json == "inf" ? 1 : -1) * std::numeric_limits<double>::infinity();
  } else if (json.is_number()) {
    value = json.get<double>();
  } else {
    refuse(fmt::format("{} of rank {} is no number, nor \"nan\", \"inf\" or \"-inf\"", json.dump(),
                       rank));
  }
  if (is_floating(dtype)) {
    return value;
  }
  // 2^53: below it a JSON number is exact as a double.
  const std::int64_t largest = dtype == DType::i8    ? 127
                               : dtype == DType::i32 ? 2147483647
                                                     : 9007199254740991;
  const bool fits = json.is_number_integer() && json.get<std::int64_t>() <= largest &&
                    json.get<std::int64_t>() >= -largest - (dtype == DType::i64 ? 0 : 1) &&
                    (!json.is_number_unsigned() ||
                     json.get<std::uint64_t>() <= static_cast<std::uint64_t>(largest));
  if (!fits) {
    refuse(fmt::format("{} of rank {} is no {} (whole, up to {} and down to {})", json.dump(), rank,
                       name_of(dtype), largest, -largest - (dtype == DType::i64 ? 0 : 1)));
  }
  return value;
}

Json json_of(double value, DType dtype) {
  if (!is_floating(dtype)) {
    return static_cast<std::int64_t>(value);
  }
  if (std::isnan(value)) {
    return "nan";
  }
  if (std::isinf(value)) {
    return value > 0 ? "inf" : "-inf";
  }
  return value;
}

Json parse(const std::string& text, int ranks) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::out_of_range&) {
    refuse(fmt::format("'{}' has a number beyond what f64 holds, {:.3g}; write \"inf\"", text,
                       std::numeric_limits<double>::max()));
  } catch (const Json::parse_error&) {
    json = Json::value_t::discarded;
  }
  if (json.is_discarded() || !json.is_array() ||
      !std::ranges::all_of(json, [](const Json& of_rank) { return of_rank.is_array(); })) {
    refuse(
        fmt::format("'{}' is no JSON list of lists; write for two ranks for example "
                    "'[[1,2,3],[4,5,6]]'",
                    text));
  }
  if (static_cast<int>(json.size()) != ranks) {
    refuse(fmt::format("has lists for {} ranks, mpiexec started {}", json.size(), ranks));
  }
  return json;
}

void check_lengths(const CallOptions& o, const Input& input) {
  const auto ranks = static_cast<std::int64_t>(input.values.size());
  std::vector<std::size_t> lengths;
  for (const std::vector<double>& of_rank : input.values) {
    lengths.push_back(of_rank.size());
  }
  const bool equal = std::ranges::count(lengths, lengths[0]) == ranks;
  if (!equal && o.operation != Operation::all_gather && o.operation != Operation::scatter &&
      input.send_counts.empty()) {
    refuse(fmt::format("the ranks' lists have {} numbers; {} needs as many from each",
                       fmt::join(lengths, ", "), name_of(o.operation)));
  }
  const std::size_t cut = o.operation == Operation::scatter ? lengths[o.root] : lengths[0];
  if ((o.operation == Operation::scatter ||
       (o.operation == Operation::all_to_all && input.send_counts.empty())) &&
      cut % input.values.size() != 0) {
    refuse(fmt::format("{} numbers cannot be cut into equal blocks for {} ranks", cut, ranks));
  }
}

Input read(const CallOptions& o, int ranks) {
  Input input;
  if (o.operation == Operation::barrier) {
    input.values.resize(static_cast<std::size_t>(ranks));
    return input;
  }
  const Json json = parse(o.values, ranks);
  const bool in_lists =
      o.operation == Operation::all_to_all && std::ranges::any_of(json, [](const Json& of_rank) {
        return !of_rank.empty() && of_rank.front().is_array();
      });
  for (int rank = 0; rank < ranks; ++rank) {
    const Json& of_rank = json[static_cast<std::size_t>(rank)];
    std::vector<double> values;
    Counts counts;
    if (!in_lists) {
      for (const Json& number : of_rank) {
        values.push_back(number_of(number, rank, o.dtype));
      }
    } else {
      for (const Json& block : of_rank) {
        if (!block.is_array()) {
          refuse(fmt::format("rank {} mixes numbers and lists", rank));
        }
        for (const Json& number : block) {
          values.push_back(number_of(number, rank, o.dtype));
        }
        counts.push_back(static_cast<std::int64_t>(block.size()));
      }
      if (static_cast<int>(counts.size()) != ranks) {
        refuse(fmt::format("rank {} has {} lists, it needs one for each of the {} ranks", rank,
                           counts.size(), ranks));
      }
      input.send_counts.push_back(counts);
    }
    input.values.push_back(std::move(values));
  }
  check_lengths(o, input);
  return input;
}

// This rank's part of the call. Returns what it gets; undefined where that is nothing.
Tensor run(const CallOptions& o, const Input& input, const Tensor& x, Communicator& communicator) {
  const int ranks = communicator.world_size();
  const int rank = communicator.rank();
  const auto own = static_cast<std::size_t>(rank);
  const bool is_root = rank == o.root;
  const auto empty = [&](std::int64_t elements) {
    return communicator.backend().empty(o.dtype, Shape{elements}, Category::communication);
  };
  const std::string label = "call";
  switch (o.operation) {
    case Operation::all_reduce: {
      const Tensor out = empty(x.elements());
      communicator.all_reduce(out, x, o.op, label).wait();
      return out;
    }
    case Operation::reduce_scatter: {
      Counts counts;
      for (int block = 0; block < ranks; ++block) {
        counts.push_back(chunk_range(x.elements(), ranks, block).count);
      }
      const Tensor out = empty(counts[own]);
      communicator.reduce_scatter(out, x, counts, o.op, label).wait();
      return out;
    }
    case Operation::all_gather: {
      Counts counts;
      for (const std::vector<double>& of_rank : input.values) {
        counts.push_back(static_cast<std::int64_t>(of_rank.size()));
      }
      const Tensor out = empty(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
      communicator.all_gather(out, x, counts, label).wait();
      return out;
    }
    case Operation::broadcast: {
      const Tensor out = empty(x.elements());
      communicator.backend().copy(out, x);
      communicator.broadcast(out, o.root, label).wait();
      return out;
    }
    case Operation::reduce: {
      const Tensor out = is_root ? empty(x.elements()) : Tensor();
      communicator.reduce(out, x, o.op, o.root, label).wait();
      return out;
    }
    case Operation::all_to_all: {
      if (input.send_counts.empty()) {
        const Tensor out = empty(x.elements());
        communicator.all_to_all(out, x, label).wait();
        return out;
      }
      Counts receive_counts;
      for (const Counts& of_rank : input.send_counts) {
        receive_counts.push_back(of_rank[own]);
      }
      const Tensor out =
          empty(std::accumulate(receive_counts.begin(), receive_counts.end(), std::int64_t{0}));
      communicator.all_to_all(out, receive_counts, x, input.send_counts[own], label).wait();
      return out;
    }
    case Operation::gather: {
      const Tensor out = is_root ? empty(ranks * x.elements()) : Tensor();
      communicator.gather(out, x, o.root, label).wait();
      return out;
    }
    case Operation::scatter: {
      const auto root = static_cast<std::size_t>(o.root);
      const Tensor out = empty(static_cast<std::int64_t>(input.values[root].size()) / ranks);
      communicator.scatter(out, x, o.root, label).wait();
      return out;
    }
    case Operation::barrier:
      communicator.barrier(label);
      return {};
  }
  return {};
}

// Every rank's numbers, on every rank.
std::vector<std::vector<double>> collect(const std::vector<double>& own,
                                         Communicator& communicator) {
  const int ranks = communicator.world_size();
  Backend& backend = communicator.backend();
  const Tensor lengths = backend.empty(DType::i64, Shape{ranks}, Category::communication);
  const Tensor length = lengths.slice(communicator.rank(), 1);
  backend.upload_values(length, std::vector<double>{static_cast<double>(own.size())});
  communicator.all_gather(lengths, length, "lengths of results").wait();
  Counts counts;
  for (const double count : backend.download_values(lengths)) {
    counts.push_back(static_cast<std::int64_t>(count));
  }
  const auto total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  const Tensor x = backend.empty(DType::f64, Shape{static_cast<std::int64_t>(own.size())},
                                 Category::communication);
  const Tensor all = backend.empty(DType::f64, Shape{total}, Category::communication);
  backend.upload_values(x, own);
  communicator.all_gather(all, x, counts, "results").wait();
  const std::vector<double> values = backend.download_values(all);
  std::vector<std::vector<double>> by_rank;
  auto next = values.begin();
  for (const std::int64_t count : counts) {
    by_rank.emplace_back(next, next + count);
    next += count;
  }
  return by_rank;
}

std::string text_of(const std::vector<double>& values, DType dtype) {
  std::vector<std::string> texts;
  for (const double value : values) {
    texts.push_back(std::isnan(value)    ? "nan"  // whatever its sign
                    : is_floating(dtype) ? fmt::format("{:.9g}", value)
                                         : fmt::format("{:.0f}", value));
  }
  return texts.empty() ? "-" : fmt::format("{}", fmt::join(texts, " "));
}

Json json_of(const std::vector<std::vector<double>>& by_rank, DType dtype) {
  Json json = Json::array();
  for (const std::vector<double>& values : by_rank) {
    Json of_rank = Json::array();
    for (const double value : values) {
      of_rank.push_back(json_of(value, dtype));
    }
    json.push_back(std::move(of_rank));
  }
  return json;
}

}  // namespace

ExitCode run_call(const CallOptions& o, Transport& transport) {
  if (o.root >= transport.world_size()) {
    throw UsageError(
        fmt::format("--root: '{}': is no rank of 0 to {}", o.root, transport.world_size() - 1));
  }
  const Input input = read(o, transport.world_size());
  Rank rank(o.resources, transport);
  Communicator& communicator = rank.communicator();
  communicator.use(o.operation, o.algorithm);
  rank.check_same_everywhere(fmt::format("{}\n{}", name_of(o.operation), o.settings));

  const auto& own = input.values[static_cast<std::size_t>(communicator.rank())];
  const Tensor x = rank.backend().empty(o.dtype, Shape{static_cast<std::int64_t>(own.size())},
                                        Category::communication);
  rank.backend().upload_values(x, own);
  const std::vector<double> given = rank.backend().download_values(x);  // rounded to the dtype
  const Tensor out = run(o, input, x, communicator);
  const auto sent = communicator.traffic_by_label().at("call").bytes_sent.value;

  const auto gives = collect(given, communicator);
  const auto gets = collect(
      out.defined() ? rank.backend().download_values(out) : std::vector<double>(), communicator);
  const auto bytes = collect({static_cast<double>(sent)}, communicator);
  if (!rank.prints()) {
    return ExitCode::ok;
  }
  if (o.json != "-") {
    Table table({{"rank", Align::right}, {"gives"}, {"gets"}, {"bytes sent", Align::right}});
    for (std::size_t r = 0; r < gives.size(); ++r) {
      table.add_row({fmt::format("{}", r), text_of(gives[r], o.dtype), text_of(gets[r], o.dtype),
                     fmt::format("{:.0f}", bytes[r][0])});
    }
    std::cout << fmt::format("{} {} of {}{}{}; {}\n\n{}", o.algorithm, name_of(o.operation),
                             name_of(o.dtype),
                             reduces(o.operation) ? fmt::format(", {}", name_of(o.op)) : "",
                             has_root(o.operation) ? fmt::format(", root {}", o.root) : "",
                             rank.description(), table.text())
              << std::flush;
  }
  if (!o.json.empty()) {
    Json bytes_json = Json::array();
    for (const std::vector<double>& of_rank : bytes) {
      bytes_json.push_back(static_cast<std::int64_t>(of_rank[0]));
    }
    write_json(o.json, {{"schema", "ringworld.call"},
                        {"version", 1},
                        {"conditions", rank.conditions()},
                        {"operation", name_of(o.operation)},
                        {"algorithm", o.algorithm},
                        {"dtype", name_of(o.dtype)},
                        {"op", reduces(o.operation) ? Json(name_of(o.op)) : Json()},
                        {"root", has_root(o.operation) ? Json(o.root) : Json()},
                        {"values", json_of(gives, o.dtype)},
                        {"results", json_of(gets, o.dtype)},
                        {"bytes_sent", std::move(bytes_json)}});
  }
  rank.explain();
  return ExitCode::ok;
}

}  // namespace ringworld
