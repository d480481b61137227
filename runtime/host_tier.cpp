#include "runtime/host_tier.h"

#include <span>
#include <stdexcept>

#include <fmt/format.h>

#include "runtime/raw.h"

namespace ringworld {
namespace {

struct HostBlock final : TierBlock {
  explicit HostBlock(Tensor bytes_) : content(std::move(bytes_)) {}
  Bytes bytes() const override { return content.bytes(); }
  const Tensor content;  // i8
};

// The block's bytes as a tensor like x.
Tensor as(const TierBlock& block, const Tensor& x) {
  const auto* host = dynamic_cast<const HostBlock*>(&block);
  if (host == nullptr || host->bytes() != x.bytes()) {
    throw std::invalid_argument(fmt::format("{} between {} of another tier or size and a tensor",
                                            to_string(x.bytes()), to_string(block.bytes())));
  }
  return Tensor(x.dtype(), x.shape(), host->content.storage());
}

void check_alike(const Tensor& host, const Tensor& x) {
  if (!host.defined() || !x.defined() || host.dtype() != x.dtype() ||
      host.elements() != x.elements()) {
    throw std::invalid_argument("a copy between host and device of tensors that are not alike");
  }
}

std::span<std::byte> bytes_of(const Tensor& x) {
  return {raw_bytes(x), static_cast<std::size_t>(x.bytes().value)};
}

}  // namespace

std::shared_ptr<Device> make_host_device(Bytes budget, std::unique_ptr<MemorySource> source) {
  return Device::create(
      {.budget = budget, .memory = "host memory", .remedy = "raise --host-memory, or offload less"},
      std::move(source));
}

HostTier::HostTier(std::unique_ptr<Backend> backend, const HostTierOptions& options)
    : backend_(std::move(backend)),
      dry_run_(options.dry_run),
      link_(options.link_bytes_per_second) {}

bool HostTier::holds(const Tensor& x) const {
  return x.defined() && x.storage()->device() == &backend_->device();
}

Work HostTier::copy_down(const Tensor& host, Backend& device, const Tensor& x) {
  check_alike(host, x);
  if (holds(x)) {
    backend_->copy(host, x, x.bytes() >= passing_bytes);
    return {};
  }
  Work carried = link_.begin(LinkDirection::down, x.bytes());
  if (!dry_run_) {
    device.download(bytes_of(host), x);
  }
  return carried;
}

Work HostTier::copy_up(Backend& device, const Tensor& out, const Tensor& host) {
  check_alike(host, out);
  if (holds(out)) {
    backend_->copy(out, host, out.bytes() >= passing_bytes);
    return {};
  }
  Work carried = link_.begin(LinkDirection::up, out.bytes());
  if (!dry_run_) {
    device.upload(out, bytes_of(host));
  }
  return carried;
}

std::shared_ptr<const TierBlock> HostTier::reserve(Bytes bytes, Category category) {
  return std::make_shared<HostBlock>(backend_->empty(DType::i8, Shape{bytes.value}, category));
}

Work HostTier::store(const std::shared_ptr<const TierBlock>& block, Backend& device,
                     const Tensor& x) {
  return copy_down(as(*block, x), device, x);
}

Work HostTier::fetch(Backend& device, const Tensor& out,
                     const std::shared_ptr<const TierBlock>& block) {
  return copy_up(device, out, as(*block, out));
}

}  // namespace ringworld
