#include "base/paths.h"

#include <unistd.h>

#include <string>

#include "base/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ablate {
namespace {

TEST(Paths, NamesOfFiles) {
  for (const std::string& good : {std::string("map.bin"), std::string("a b-1_2.svg"), std::string("x"),
                                  std::string(128, 'x'), std::string("gr\xc3\xb6\xc3\x9f" "e"), std::string("a..b")}) {
    EXPECT_TRUE(CheckFileName("a made file", good).ok()) << good;
  }
  for (const std::string& bad :
       {std::string(), std::string("."), std::string(".."), std::string("../x"), std::string("/etc/passwd"),
        std::string("a/b"), std::string("a\\b"), std::string(".hidden"), std::string("a\0b", 3), std::string("a\nb"),
        std::string("\x1b[2J"), std::string(129, 'x'), std::string("\xff\xfe")}) {
    const absl::Status status = CheckFileName("a made file", bad);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << bad;
    EXPECT_EQ(std::string(status.message()).find('\x1b'), std::string::npos);
  }
}

TEST(Paths, NothingLeadsOutOfItsFolder) {
  TempDir dir;
  const std::string root = JoinPath(dir.path(), "root"), outside = JoinPath(dir.path(), "root-2");
  ASSERT_TRUE(MakeDirs(JoinPath(root, "deep")).ok());
  ASSERT_TRUE(MakeDirs(outside).ok());
  ASSERT_TRUE(WriteFileAtomic(JoinPath(root, "deep/a"), "a").ok());
  ASSERT_TRUE(WriteFileAtomic(JoinPath(outside, "secret"), "s").ok());
  ASSERT_EQ(::symlink("deep/a", JoinPath(root, "inner").c_str()), 0);
  ASSERT_EQ(::symlink("../root-2/secret", JoinPath(root, "leaf").c_str()), 0);
  ASSERT_EQ(::symlink(outside.c_str(), JoinPath(root, "branch").c_str()), 0);
  const std::string a = *ResolveBeneath(root, "deep/a");
  EXPECT_EQ(Basename(a), "a");
  for (const std::string& good : {std::string("deep/../deep/a"), std::string("inner"), root + "/deep/a", std::string("./deep//a")})
    EXPECT_EQ(ResolveBeneath(root, good).value_or(""), a) << good;
  for (const std::string& bad : {std::string("../root-2/secret"), std::string("leaf"), std::string("branch/secret"),
                                 outside + "/secret", std::string("/etc/passwd"), std::string("deep/../../root-2/secret"),
                                 std::string("."), root, std::string("../absent")}) {
    EXPECT_TRUE(absl::IsPermissionDenied(ResolveBeneath(root, bad).status())) << bad << ResolveBeneath(root, bad).status();
  }
  EXPECT_TRUE(absl::IsNotFound(ResolveBeneath(root, "absent").status()));
  for (const std::string& bad : {std::string(), std::string("deep/a\0b", 8), std::string(5000, 'x')})
    EXPECT_TRUE(absl::IsInvalidArgument(ResolveBeneath(root, bad).status()));
  // A root that is itself reached by a link.
  const std::string alias = JoinPath(dir.path(), "alias");
  ASSERT_EQ(::symlink(root.c_str(), alias.c_str()), 0);
  EXPECT_EQ(ResolveBeneath(alias, "deep/a").value_or(""), a);
}

}  // namespace
}  // namespace ablate
