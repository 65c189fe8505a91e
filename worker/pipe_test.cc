#include "worker/pipe.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "proto/trainer.pb.h"

namespace ablate {
namespace {

class PipeTest : public ::testing::Test {
 protected:
  PipeTest() {
    ::signal(SIGPIPE, SIG_IGN);
    int fds[2];
    EXPECT_EQ(::pipe(fds), 0);
    in_ = fds[0];
    out_ = fds[1];
  }
  ~PipeTest() override {
    CloseIn();
    CloseOut();
  }
  void CloseIn() {
    if (in_ >= 0) ::close(in_);
    in_ = -1;
  }
  void CloseOut() {
    if (out_ >= 0) ::close(out_);
    out_ = -1;
  }
  void WriteRaw(const std::string& bytes) {
    ASSERT_EQ(::write(out_, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }

  int in_ = -1;
  int out_ = -1;
};

v1::TrainerEvent Progress(int64_t step, int points = 0) {
  v1::TrainerEvent event;
  event.mutable_progress()->set_step(step);
  for (int i = 0; i < points; ++i) {
    v1::CurvePoint* point = event.mutable_progress()->add_points();
    point->set_metric("train_loss");
    point->set_step(i);
    point->set_value(0.5 * i);
  }
  return event;
}

std::string Encoded(const v1::TrainerEvent& event) {
  int fds[2];
  EXPECT_EQ(::pipe(fds), 0);
  EXPECT_TRUE(WriteMessage(fds[1], event).ok());
  ::close(fds[1]);
  std::string bytes(1 << 16, '\0');
  bytes.resize(static_cast<size_t>(::read(fds[0], bytes.data(), bytes.size())));
  ::close(fds[0]);
  return bytes;
}

TEST_F(PipeTest, MessagesOfAllSizesComeBackInOrder) {
  const std::vector<int> sizes = {0, 1, 3, 500, 40'000};
  std::thread writer([&] {
    for (const int size : sizes) EXPECT_TRUE(WriteMessage(out_, Progress(size, size)).ok());
    EXPECT_TRUE(WriteMessage(out_, v1::TrainerEvent()).ok());
    CloseOut();
  });
  v1::TrainerEvent event;
  for (const int size : sizes) {
    ASSERT_TRUE(ReadMessage(in_, &event).ok());
    EXPECT_EQ(event.SerializeAsString(), Progress(size, size).SerializeAsString());
  }
  ASSERT_TRUE(ReadMessage(in_, &event).ok());  // an empty message is a message
  EXPECT_EQ(event.kind_case(), v1::TrainerEvent::KIND_NOT_SET);
  EXPECT_EQ(ReadMessage(in_, &event).code(), absl::StatusCode::kOutOfRange);
  writer.join();
}

TEST_F(PipeTest, AnEndInsideAMessageIsNoCleanEnd) {
  const std::string whole = Encoded(Progress(7, 40));
  ASSERT_GT(whole.size(), 130u);  // a length of two bytes: cuts inside it are covered too
  for (size_t cut = 1; cut < whole.size(); ++cut) {
    int fds[2];
    ASSERT_EQ(::pipe(fds), 0);
    ASSERT_EQ(::write(fds[1], whole.data(), cut), static_cast<ssize_t>(cut));
    ::close(fds[1]);
    v1::TrainerEvent event;
    EXPECT_EQ(ReadMessage(fds[0], &event).code(), absl::StatusCode::kDataLoss) << cut;
    ::close(fds[0]);
  }
}

TEST_F(PipeTest, TooLongIsRefusedBeforeItIsRead) {
  WriteRaw(std::string("\xff\xff\xff\xff\x07", 5));  // 2 GiB announced, nothing sent
  v1::TrainerEvent event;
  EXPECT_EQ(ReadMessage(in_, &event).code(), absl::StatusCode::kResourceExhausted);
  WriteRaw(Encoded(Progress(1, 10)));
  EXPECT_EQ(ReadMessage(in_, &event, 20).code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(PipeTest, ALengthThatIsNoVarintIsDataLoss) {
  v1::TrainerEvent event;
  WriteRaw(std::string(5, '\xff'));
  EXPECT_EQ(ReadMessage(in_, &event).code(), absl::StatusCode::kDataLoss);
}

TEST_F(PipeTest, BytesThatDoNotParseAreDataLoss) {
  v1::TrainerEvent event;
  WriteRaw("\x03\xff\xff\xff");
  EXPECT_EQ(ReadMessage(in_, &event).code(), absl::StatusCode::kDataLoss);
}

TEST_F(PipeTest, AClosedReaderIsAnErrorNotASignal) {
  CloseIn();
  EXPECT_EQ(WriteMessage(out_, Progress(1)).code(), absl::StatusCode::kUnavailable);
}

TEST_F(PipeTest, AReaderThatTakesNothingEndsInTheDeadline) {
  ASSERT_EQ(::fcntl(out_, F_SETFL, O_NONBLOCK), 0);
  EXPECT_EQ(WriteMessage(out_, Progress(1, 20'000), /*timeout_ms=*/20).code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(MessageBufferTest, AnyCutOfTheStreamGivesTheSameMessages) {
  std::string stream;
  for (int i = 0; i < 20; ++i) stream += Encoded(Progress(i, i * 7));
  for (const size_t piece : {size_t{1}, size_t{2}, size_t{3}, size_t{17}, size_t{1000}, stream.size()}) {
    MessageBuffer buffer;
    int seen = 0;
    v1::TrainerEvent event;
    for (size_t at = 0; at < stream.size(); at += piece) {
      buffer.Append(std::string_view(stream).substr(at, piece));
      for (;;) {
        const absl::StatusOr<bool> next = buffer.Next(&event);
        ASSERT_TRUE(next.ok());
        if (!*next) break;
        EXPECT_EQ(event.progress().step(), seen);
        EXPECT_EQ(event.progress().points_size(), seen * 7);
        ++seen;
      }
    }
    EXPECT_EQ(seen, 20);
    EXPECT_TRUE(buffer.AtBoundary());
  }
}

TEST(MessageBufferTest, SaysWhetherAnEndWouldBeClean) {
  const std::string whole = Encoded(Progress(3, 5));
  MessageBuffer buffer;
  v1::TrainerEvent event;
  EXPECT_TRUE(buffer.AtBoundary());
  buffer.Append(std::string_view(whole).substr(0, whole.size() - 1));
  EXPECT_FALSE(*buffer.Next(&event));
  EXPECT_FALSE(buffer.AtBoundary());
  buffer.Append(std::string_view(whole).substr(whole.size() - 1));
  EXPECT_TRUE(*buffer.Next(&event));
  EXPECT_TRUE(buffer.AtBoundary());
}

TEST(MessageBufferTest, RefusesWhatReadMessageRefuses) {
  v1::TrainerEvent event;
  MessageBuffer small(20);
  small.Append(Encoded(Progress(1, 10)));
  EXPECT_EQ(small.Next(&event).status().code(), absl::StatusCode::kResourceExhausted);
  MessageBuffer garbage;
  garbage.Append(std::string(6, '\xff'));
  EXPECT_EQ(garbage.Next(&event).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace ablate
