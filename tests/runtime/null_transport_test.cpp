// The null transport: what it answers in place of the real ones, and that nothing is waited for.
#include <array>

#include <gtest/gtest.h>

#include "runtime/error.h"
#include "runtime/meta_backend.h"
#include "runtime/transport.h"

namespace ringworld {
namespace {

using As = NullOptions::As;

TEST(Null, PlaysARankOfAnyWorld) {
  const auto transport = make_null_transport(12'345, 16'384);
  EXPECT_EQ(transport->rank(), 12'345);
  EXPECT_EQ(transport->world_size(), 16'384);
  EXPECT_EQ(transport->local_ranks(), 16'384);
  EXPECT_EQ(transport->library(), nullptr);
  EXPECT_THROW(make_null_transport(4, 4), std::invalid_argument);
  EXPECT_THROW(make_null_transport(-1, 4), std::invalid_argument);
  EXPECT_THROW(make_null_transport(0, 4, {.local_ranks = 5}), std::invalid_argument);
}

TEST(Null, AnswersAsSharedMemoryWithinAMachine) {
  const auto transport = make_null_transport(5, 11, {.as = As::shared, .local_ranks = 4});
  EXPECT_EQ(transport->name(), "mixed");
  EXPECT_EQ(transport->local_ranks(), 4);
  for (int peer = 0; peer < 11; ++peer) {
    EXPECT_EQ(transport->in_place(peer), peer >= 4 && peer < 8) << peer;
    EXPECT_EQ(transport->takes_small(peer), peer >= 4 && peer < 8) << peer;
  }
  EXPECT_EQ(make_null_transport(9, 11, {.local_ranks = 4})->local_ranks(), 3);
  EXPECT_EQ(make_null_transport(5, 11)->name(), "shared");
}

TEST(Null, AnswersAsMpiAndAsThreads) {
  const auto mpi = make_null_transport(1, 4, {.as = As::mpi, .local_ranks = 2});
  EXPECT_EQ(mpi->name(), "mpi");
  EXPECT_EQ(mpi->local_ranks(), 2);
  EXPECT_FALSE(mpi->in_place(0) || mpi->takes_small(0));
  const auto threads = make_null_transport(1, 4, {.as = As::threads});
  EXPECT_EQ(threads->name(), "threads");
  EXPECT_TRUE(threads->in_place(0));
  EXPECT_FALSE(threads->takes_small(0));
  EXPECT_EQ(make_null_transport(0, 1)->name(), "mpi") << "one rank shares memory with nobody";
}

TEST(Null, EverythingIsCompleteAtOnce) {
  const auto backend = make_meta_backend(make_meta_device(Bytes(0)), 1);
  const auto transport = make_null_transport(0, 3);
  transport->bind(*backend);
  const Tensor x = backend->empty(DType::f32, {1 << 20}, Category::communication);
  const auto send = transport->send(1, 7, x);
  const auto receive = transport->receive(2, 7, x);
  const auto read = transport->read(2, 8, DType::bf16, 5);
  EXPECT_EQ(transport->wait_any(std::array{send, receive}), 0u);
  EXPECT_TRUE(transport->test(receive));
  transport->wait(read);
  EXPECT_EQ(transport->reading(read).dtype(), DType::bf16);
  EXPECT_EQ(transport->reading(read).shape(), (Shape{5}));
  EXPECT_EQ(backend->device().ledger().total_held, x.bytes()) << "what peers hold is theirs";
  transport->done_reading(read);
}

TEST(Null, IsForTheMetaBackend) {
  const auto transport = make_null_transport(0, 2);
  const auto cpu = make_cpu_backend(Device::create({}), 1);
  EXPECT_THROW(transport->bind(*cpu), std::invalid_argument);
}

TEST(Null, ThrowsOnceAbandoned) {
  const auto transport = make_null_transport(0, 2);
  const auto ticket = transport->send(1, 0, Tensor());
  transport->abandon();
  EXPECT_THROW(transport->wait(ticket), CommunicationError);
  EXPECT_THROW(transport->send(1, 0, Tensor()), CommunicationError);
}

}  // namespace
}  // namespace ringworld
