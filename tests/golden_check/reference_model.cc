#include "tests/golden_check/reference_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/reference/attention.h"
#include "kernels/reference/ops.h"

namespace ablate::reference {
namespace {

using Tensor = std::vector<double>;

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

bool Decays(const std::string& name) {
  if (name == "wte" || name == "wpe") return true;
  for (const char* linear : {".qkv.w", ".proj.w", ".fc.w", ".fcproj.w"}) {
    if (EndsWith(name, linear)) return true;
  }
  return false;
}

// One pass of one batch; keeps what backward needs in plain members.
class Pass {
 public:
  Pass(const ModelShape& shape, const TensorMap& params, const std::vector<int32_t>& tokens,
       const std::vector<int32_t>& targets, int B, int T, int window = 0)
      : s_(shape),
        params_(params),
        tokens_(tokens),
        targets_(targets),
        C_(shape.width),
        N_(B * T),
        heads_{B, T, shape.heads, shape.width / shape.heads, window} {
    for (int i = 0; i < N_; ++i) positions_.push_back(i % T);
    if (shape.rope_base > 0) {
      cos_.resize(static_cast<size_t>(T) * heads_.D / 2);
      sin_.resize(cos_.size());
      RopeTable(shape.rope_base, T, heads_.D, cos_.data(), sin_.data());
    }
  }

  // Of one head after Run: with D columns of the identity as values the output is D columns of the weights.
  void WeightsOf(int l, int b, int h, double* weights) {
    const int T = heads_.T, D = heads_.D;
    const size_t at = (static_cast<size_t>(b) * heads_.H + h) * T * D;
    double* const v = &blocks_[l].v[at];
    for (int column = 0; column < T; column += D) {
      std::fill_n(v, static_cast<size_t>(T) * D, 0.0);
      for (int d = 0; d < D && column + d < T; ++d) v[static_cast<size_t>(column + d) * D + d] = 1;
      const AttentionResult r = Head(l, b, h, nullptr);
      for (int i = 0; i < T; ++i) {
        for (int d = 0; d < D && column + d < T; ++d) {
          weights[static_cast<size_t>(i) * T + column + d] = r.out[static_cast<size_t>(i) * D + d];
        }
      }
    }
  }

  double Run(TensorMap* grads) {
    grads_ = grads;
    if (grads_ != nullptr) {
      grads_->clear();
      for (const auto& [name, values] : params_) (*grads_)[name].assign(values.size(), 0.0);
    }
    Tensor x(Size(C_));
    EmbeddingForward(tokens_.data(), P("wte"), x.data(), N_, C_);
    const bool learned = params_.count("wpe") > 0;
    if (learned) {
      Tensor position(Size(C_));
      EmbeddingForward(positions_.data(), P("wpe"), position.data(), N_, C_);
      for (size_t i = 0; i < x.size(); ++i) x[i] += position[i];
    }
    blocks_.resize(s_.layers);
    for (int l = 0; l < s_.layers; ++l) Forward(l, &x);
    Tensor lnf(Size(C_)), logits(Size(s_.vocab)), losses(N_), dlogits(Size(s_.vocab));
    LayerNormForward(x.data(), P("lnf.w"), P("lnf.b"), lnf.data(), N_, C_);
    LinearForward(lnf.data(), P("wte"), nullptr, logits.data(), N_, C_, s_.vocab);
    int scored = 0;
    for (const int32_t target : targets_) scored += target >= 0 ? 1 : 0;
    const double scale = scored == 0 ? 0.0 : 1.0 / scored;
    CrossEntropy(logits.data(), targets_.data(), losses.data(), dlogits.data(), scale, N_, s_.vocab);
    double loss = 0;
    for (const double l : losses) loss += l * scale;
    if (grads_ == nullptr) return loss;

    Tensor dlnf(Size(C_)), dx(Size(C_));
    LinearBackward(dlogits.data(), lnf.data(), P("wte"), dlnf.data(), G("wte"), nullptr, N_, C_, s_.vocab);
    LayerNormBackward(dlnf.data(), x.data(), P("lnf.w"), dx.data(), G("lnf.w"), G("lnf.b"), N_, C_);
    for (int l = s_.layers - 1; l >= 0; --l) Backward(l, &dx);
    EmbeddingBackward(tokens_.data(), dx.data(), G("wte"), N_, C_);
    if (learned) EmbeddingBackward(positions_.data(), dx.data(), G("wpe"), N_, C_);
    return loss;
  }

 private:
  struct Block {
    Tensor input, ln1, qkv, q, k, v, attention, middle, ln2, fc, gelu;
  };

  size_t Size(int columns) const { return static_cast<size_t>(N_) * columns; }
  const double* P(const std::string& name) const {
    const auto it = params_.find(name);
    return it == params_.end() ? nullptr : it->second.data();
  }
  double* G(const std::string& name) { return (*grads_)[name].data(); }
  const double* Cos() const { return cos_.empty() ? nullptr : cos_.data(); }
  const double* Sin() const { return sin_.empty() ? nullptr : sin_.data(); }

  // One head of one sequence; l2 normalisation happens inside.
  AttentionResult Head(int l, int b, int h, const double* dout) const {
    const Block& block = blocks_[l];
    const size_t at = (static_cast<size_t>(b) * heads_.H + h) * heads_.T * heads_.D;
    const double* s = P(absl::StrCat("h", l, ".ssmax.s"));
    const double* bias = P(absl::StrCat("h", l, ".ssmax.b"));
    return Attention(s_.spec, heads_.T, heads_.D, heads_.window, &block.q[at], &block.k[at], &block.v[at],
                     s == nullptr ? 1.0 : s[h], bias == nullptr ? 0.0 : bias[h], dout, AlibiSlope(h, heads_.H));
  }
  size_t Row(int b, int t, int h) const { return ((static_cast<size_t>(b) * heads_.T + t) * heads_.H + h) * heads_.D; }

  void Forward(int l, Tensor* x) {
    const std::string h = absl::StrCat("h", l, ".");
    Block& k = blocks_[l];
    k.input = *x;
    for (Tensor* t : {&k.ln1, &k.q, &k.k, &k.v, &k.attention, &k.middle, &k.ln2}) t->resize(Size(C_));
    k.qkv.resize(Size(3 * C_));
    k.fc.resize(Size(4 * C_));
    k.gelu.resize(Size(4 * C_));
    Tensor branch(Size(C_));
    LayerNormForward(k.input.data(), P(h + "ln1.w"), P(h + "ln1.b"), k.ln1.data(), N_, C_);
    LinearForward(k.ln1.data(), P(h + "qkv.w"), P(h + "qkv.b"), k.qkv.data(), N_, C_, 3 * C_);
    QkvForward(k.qkv.data(), Cos(), Sin(), QkNorm::kNone, k.q.data(), k.k.data(), k.v.data(), heads_);
    for (int b = 0; b < heads_.B; ++b) {
      for (int head = 0; head < heads_.H; ++head) {
        const AttentionResult r = Head(l, b, head, nullptr);
        for (int t = 0; t < heads_.T; ++t) {
          std::copy_n(&r.out[static_cast<size_t>(t) * heads_.D], heads_.D, &k.attention[Row(b, t, head)]);
        }
      }
    }
    LinearForward(k.attention.data(), P(h + "proj.w"), P(h + "proj.b"), branch.data(), N_, C_, C_);
    for (size_t i = 0; i < branch.size(); ++i) k.middle[i] = k.input[i] + branch[i];
    LayerNormForward(k.middle.data(), P(h + "ln2.w"), P(h + "ln2.b"), k.ln2.data(), N_, C_);
    LinearForward(k.ln2.data(), P(h + "fc.w"), P(h + "fc.b"), k.fc.data(), N_, C_, 4 * C_);
    GeluForward(k.fc.data(), k.gelu.data(), static_cast<int64_t>(k.fc.size()));
    LinearForward(k.gelu.data(), P(h + "fcproj.w"), P(h + "fcproj.b"), branch.data(), N_, 4 * C_, C_);
    for (size_t i = 0; i < branch.size(); ++i) (*x)[i] = k.middle[i] + branch[i];
  }

  void Backward(int l, Tensor* dx) {
    const std::string h = absl::StrCat("h", l, ".");
    const Block& k = blocks_[l];
    Tensor dwide(Size(4 * C_)), dnarrow(Size(C_)), dqkv(Size(3 * C_)), dq(Size(C_)), dk(Size(C_)), dv(Size(C_));
    LinearBackward(dx->data(), k.gelu.data(), P(h + "fcproj.w"), dwide.data(), G(h + "fcproj.w"), G(h + "fcproj.b"), N_,
                   4 * C_, C_);
    GeluBackward(dwide.data(), k.fc.data(), dwide.data(), static_cast<int64_t>(dwide.size()));
    LinearBackward(dwide.data(), k.ln2.data(), P(h + "fc.w"), dnarrow.data(), G(h + "fc.w"), G(h + "fc.b"), N_, C_,
                   4 * C_);
    LayerNormBackward(dnarrow.data(), k.middle.data(), P(h + "ln2.w"), dx->data(), G(h + "ln2.w"), G(h + "ln2.b"), N_,
                      C_);
    LinearBackward(dx->data(), k.attention.data(), P(h + "proj.w"), dnarrow.data(), G(h + "proj.w"), G(h + "proj.b"),
                   N_, C_, C_);
    for (int b = 0; b < heads_.B; ++b) {
      for (int head = 0; head < heads_.H; ++head) {
        Tensor dout;
        for (int t = 0; t < heads_.T; ++t) {
          const double* row = &dnarrow[Row(b, t, head)];
          dout.insert(dout.end(), row, row + heads_.D);
        }
        const AttentionResult r = Head(l, b, head, dout.data());
        const size_t at = (static_cast<size_t>(b) * heads_.H + head) * heads_.T * heads_.D;
        std::copy(r.dq.begin(), r.dq.end(), dq.begin() + at);
        std::copy(r.dk.begin(), r.dk.end(), dk.begin() + at);
        std::copy(r.dv.begin(), r.dv.end(), dv.begin() + at);
        if (s_.spec.has_learned_scale()) G(h + "ssmax.s")[head] += r.dlearned_s;
        if (s_.spec.has_learned_bias()) G(h + "ssmax.b")[head] += r.dlearned_b;
      }
    }
    QkvBackward(dq.data(), dk.data(), dv.data(), k.qkv.data(), Cos(), Sin(), QkNorm::kNone, dqkv.data(), heads_);
    LinearBackward(dqkv.data(), k.ln1.data(), P(h + "qkv.w"), dnarrow.data(), G(h + "qkv.w"), G(h + "qkv.b"), N_, C_,
                   3 * C_);
    LayerNormBackward(dnarrow.data(), k.input.data(), P(h + "ln1.w"), dx->data(), G(h + "ln1.w"), G(h + "ln1.b"), N_,
                      C_);
  }

  const ModelShape& s_;
  const TensorMap& params_;
  const std::vector<int32_t>&tokens_, &targets_;
  const int C_, N_;
  const AttentionShape heads_;
  std::vector<int32_t> positions_;
  Tensor cos_, sin_;
  std::vector<Block> blocks_;
  TensorMap* grads_ = nullptr;
};

}  // namespace

double ModelLoss(const ModelShape& shape, const TensorMap& params, const std::vector<int32_t>& tokens,
                 const std::vector<int32_t>& targets, int B, int T, TensorMap* grads) {
  return Pass(shape, params, tokens, targets, B, T).Run(grads);
}

std::vector<double> AttentionWeights(const ModelShape& shape, const TensorMap& params,
                                     const std::vector<int32_t>& tokens, int B, int T, int window) {
  const std::vector<int32_t> targets(tokens.size(), -1);
  Pass pass(shape, params, tokens, targets, B, T, window);
  pass.Run(nullptr);
  const size_t one = static_cast<size_t>(T) * T;
  std::vector<double> weights(one * shape.layers * B * shape.heads);
  double* at = weights.data();
  for (int l = 0; l < shape.layers; ++l) {
    for (int b = 0; b < B; ++b) {
      for (int h = 0; h < shape.heads; ++h, at += one) pass.WeightsOf(l, b, h, at);
    }
  }
  return weights;
}

std::string ModelParametersProblem(const ModelShape& shape, const TensorMap& params) {
  const size_t C = shape.width, H = shape.heads;
  std::map<std::string, size_t> sizes = {{"wte", shape.vocab * C}, {"lnf.w", C}, {"lnf.b", C}};
  for (int l = 0; l < shape.layers; ++l) {
    const std::string h = absl::StrCat("h", l, ".");
    for (const char* name : {"ln1.w", "ln1.b", "ln2.w", "ln2.b", "proj.b", "fcproj.b"}) sizes[h + name] = C;
    sizes[h + "qkv.w"] = 3 * C * C;
    sizes[h + "qkv.b"] = 3 * C;
    sizes[h + "proj.w"] = C * C;
    sizes[h + "fc.w"] = sizes[h + "fcproj.w"] = 4 * C * C;
    sizes[h + "fc.b"] = 4 * C;
    if (shape.spec.has_learned_scale()) sizes[h + "ssmax.s"] = H;
    if (shape.spec.has_learned_bias()) sizes[h + "ssmax.b"] = H;
  }
  for (const auto& [name, size] : sizes) {
    const auto it = params.find(name);
    if (it == params.end()) return absl::StrCat("params.", name, " is missing");
    if (it->second.size() != size) {
      return absl::StrCat("params.", name, " has ", it->second.size(), " values, not ", size);
    }
  }
  for (const auto& [name, values] : params) {
    if (sizes.count(name) == 0 && name != "wpe")
      return absl::StrCat("params.", name, " is not a parameter of this model");
  }
  return "";
}

double AdamWStep(const GoldenModelCase& hyper, int64_t step, TensorMap* params, const TensorMap& grads, TensorMap* m,
                 TensorMap* v) {
  double squares = 0;
  for (const auto& [name, g] : grads) {
    for (const double e : g) squares += e * e;
  }
  const double norm = std::sqrt(squares);
  const double scale = hyper.clip > 0 ? std::min(1.0, hyper.clip / norm) : 1.0;
  for (const auto& [name, g] : grads) {
    Tensor clipped = g;
    for (double& e : clipped) e *= scale;
    Tensor& first = (*m)[name];
    Tensor& second = (*v)[name];
    first.resize(g.size());
    second.resize(g.size());
    AdamW((*params)[name].data(), clipped.data(), first.data(), second.data(), static_cast<int64_t>(g.size()),
          hyper.learning_rate, hyper.beta1, hyper.beta2, hyper.eps, Decays(name) ? hyper.weight_decay : 0.0, step);
  }
  return norm;
}

}  // namespace ablate::reference
