// Writes down what a rank has in one optimizer step, in the order of execution: see dump_format.h.
//
//   TensorDump dump({.directory = "d", .step = 3}, model, backend, communicator);
//   const GradientStep step = compute_gradients(..., {.observer = &dump});
//   dump.write_gradients(strategy, step);
//   ... begin_update, optimizer, finish_update ...
//   dump.write_parameters(strategy);
//   dump.finish();
//
// Every rank calls all of it. Tensors go through host memory one at a time; gathers of whole ones
// are counted as traffic, and charged to the device, as any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "models/model.h"
#include "parallel/micro_batch.h"
#include "parallel/strategy.h"
#include "training/dump_format.h"
#include "training/gradient_step.h"

namespace ringworld {

struct DumpOptions {
  std::string directory;
  std::int64_t step = 0;  // from 1
};

class TensorDump final : public UnitObserver {
 public:
  // Makes the directory where there is none. Throws DataError when that cannot be, when it cannot
  // be written to, or when it holds a dump already; so does every member below when the disk is
  // full. Everything must outlive the dump.
  TensorDump(const DumpOptions& options, const Model& model, Backend& backend,
             Communicator& communicator);
  ~TensorDump() override;  // what was not finished leaves nothing behind
  TensorDump(const TensorDump&) = delete;
  TensorDump& operator=(const TensorDump&) = delete;

  // The batch's first_token must count all tokens of the run, with or without dropout.
  void before_micro_batch(const Batch& batch, int micro_batch, const Unit& next,
                          bool backward) override;
  void after_forward(const Unit& unit, const Tensor& y) override;
  void after_backward(const Unit& unit, const Tensor& dx) override;

  // Loss, every whole gradient, the last unit's first, and the gradient norm, which is of the
  // unscaled gradient: after finish_gradients, before the optimizer.
  void write_gradients(Strategy& strategy, const GradientStep& step);
  // Every whole parameter: after finish_update.
  void write_parameters(Strategy& strategy);
  // Gives the files their names.
  void finish();

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  void write_unit(DumpKind kind, const Unit& unit, const Tensor& x);
  void write_number(DumpKind kind, double value);
  void write_whole(DumpKind kind, std::size_t position, const Tensor& x);
  // Appends the bytes; `entry` becomes complete with place and order.
  void append(DumpEntry entry, std::span<const std::byte> bytes);
  void append(DumpEntry entry, const Tensor& x);
  std::string path(std::string_view suffix) const;
  std::string unit_of(const Parameter& parameter) const;
  [[noreturn]] void fail(const std::string& path, const std::string& why) const;

  const std::string directory_;
  const Model& model_;
  Backend& backend_;
  Communicator& communicator_;
  DumpIndex index_;
  std::int64_t first_sequence_ = 0;  // of the micro-batch under way
  std::int64_t sequences_ = 0;       // 0: none has begun
  std::int64_t offset_ = 0;
  std::unique_ptr<std::FILE, Close> file_;  // null: finished
};

}  // namespace ringworld
