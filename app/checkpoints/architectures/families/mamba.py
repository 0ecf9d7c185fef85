"""Models of Mamba alone, as transformers and as the authors' own package store them."""

from app.checkpoints.architectures.assembly import Family, Layout, Model, decoder
from app.checkpoints.architectures.fields import Fields
from app.checkpoints.architectures.parts.recurrent import Mamba, mamba1, mamba2
from app.checkpoints.architectures.weights import Part, norm

BACKBONE = Layout("backbone.embeddings", "backbone.layers", "backbone.norm_f", "lm_head")
AUTHORS = Layout("backbone.embedding", "backbone.layers", "backbone.norm_f", "lm_head")


def first(c: Fields) -> Model:
    """Mamba 1; ``intermediate_size`` rules where it and ``expand`` disagree."""
    hidden = c.whole("hidden_size")
    rank = c.find("time_step_rank")
    of = Mamba(
        inner=c.optional("intermediate_size") or c.whole("expand", default=2) * hidden,
        state=c.whole("state_size", default=16),
        conv=c.whole("conv_kernel", default=4),
        dt_rank=-(-hidden // 16) if rank in (None, "auto") else c.whole("time_step_rank"),
        bias=c.flag("use_bias"),
        conv_bias=c.flag("use_conv_bias", True),
    )
    layer = norm("norm", hidden) + mamba1(hidden, of).under("mixer")
    return decoder(c, (layer,) * c.layers("num_hidden_layers"), layout=BACKBONE, tied=True)


def second(c: Fields) -> Model:
    """Mamba 2."""
    hidden, n = c.whole("hidden_size"), c.whole("num_heads", default=128)
    inner = c.whole("expand", default=2) * hidden
    if inner != n * c.whole("head_dim", default=64):
        raise c.wrong("num_heads", f"times head_dim is not the {inner} of expand x hidden_size")
    of = Mamba(
        inner=inner,
        state=c.whole("state_size", default=128),
        conv=c.whole("conv_kernel", default=4),
        groups=c.whole("n_groups", default=8),
        n_heads=n,
        bias=c.flag("use_bias"),
        conv_bias=c.flag("use_conv_bias", True),
    )
    layer = norm("norm", hidden) + mamba2(hidden, of).under("mixer")
    return decoder(c, (layer,) * c.layers("num_hidden_layers"), layout=BACKBONE)


def authors(c: Fields) -> Model:
    """The format of the package mamba_ssm: other keys, and a vocabulary padded to a multiple."""
    if c.items("attn_layer_idx", int):
        raise c.wrong("attn_layer_idx", "asks for attention between the layers of mamba_ssm, which isn't known here")
    if c.whole("d_intermediate", default=0, least=0):
        raise c.wrong(
            "d_intermediate", "asks for feed-forwards between the layers of mamba_ssm, which isn't known here"
        )
    inner = c.inner("ssm_cfg")
    hidden, multiple = c.whole("d_model"), c.whole("pad_vocab_size_multiple", default=8)
    known = {
        "hidden_size": hidden,
        "vocab_size": -(-c.whole("vocab_size") // multiple) * multiple,
        "tie_word_embeddings": c.flag("tie_embeddings", True),
    }
    build = {"Mamba1": _authors_first, "Mamba2": _authors_second}.get(inner.word("layer", "Mamba1"))
    if build is None:
        raise inner.wrong("layer", "is neither Mamba1 nor Mamba2")
    layer = norm("norm", hidden) + build(inner, hidden).under("mixer")
    return decoder(Fields(known), (layer,) * c.layers("n_layer"), layout=AUTHORS)


def _authors_first(c: Fields, hidden: int) -> Part:
    rank = c.find("dt_rank")
    of = Mamba(
        inner=c.whole("expand", default=2) * hidden,
        state=c.whole("d_state", default=16),
        conv=c.whole("d_conv", default=4),
        dt_rank=-(-hidden // 16) if rank in (None, "auto") else c.whole("dt_rank"),
    )
    return mamba1(hidden, of)


def _authors_second(c: Fields, hidden: int) -> Part:
    inner = c.whole("expand", default=2) * hidden
    of = Mamba(
        inner=inner,
        state=c.whole("d_state", default=128),
        conv=c.whole("d_conv", default=4),
        groups=c.whole("ngroups", default=1),
        n_heads=c.share("expand x d_model", inner, "headdim", c.whole("headdim", default=64)),
    )
    return mamba2(hidden, of)


FAMILIES = {
    "mamba": Family(first),
    "falcon_mamba": Family(first),
    "mamba2": Family(second),
    "mamba_ssm": Family(authors),
}
