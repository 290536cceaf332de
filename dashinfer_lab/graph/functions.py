"""Operators the ONNX standard lacks, as local functions whose bodies are standard operators.

Any runtime can run them; `lower` recognises them by name and never looks at the bodies. Those that
unpack return the weight W [K, N] from panels as `jit_kernels.panels` describes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dashinfer_lab.graph.attention_options import ATTENTION_BODIES

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["ACTIVATION_BITS", "DOMAIN", "OPSET", "ROTARY_IDS", "local_function"]

DOMAIN = "dashinfer_lab"
ROTARY_IDS = "rotary_ids"
"""Input beside position_ids: where the base of rotation follows the prompt, rows of its table."""
OPSET = 24
ACTIVATION_BITS = "dashinfer_lab.activation_bits"
"""Metadata of a node that unpacks integers: to how many bits the rows they meet are quantised.

No operator of the graph: it is how `lower` computes the product, not what the product is.
"""

_HEADER = f'<opset_import: ["" : {OPSET}], domain: "{DOMAIN}">'

# Cuts the padding off: [padded K, padded N] -> [k, n].
_CROP = """
    starts = Constant <value_ints = [0, 0]> ()
    axis = Constant <value_ints = [0]> ()
    k_scalar = Constant <value_int: int = @k> ()
    n_scalar = Constant <value_int: int = @n> ()
    k_length = Unsqueeze (k_scalar, axis)
    n_length = Unsqueeze (n_scalar, axis)
    ends = Concat <axis = 0> (k_length, n_length)
    weight = Slice (padded, starts, ends)
"""

# w = q * scale + minimum, scale row k / group_size for row k of the codes, [padded K, padded N].
_SCALE = """
    steps = Cast <to = 1> (codes)

    group_columns_of_scale = Transpose <perm = [1, 0, 2]> (scale)
    group_rows_of_scale = Flatten <axis = 1> (group_columns_of_scale)
    group_scale = Cast <to = 1> (group_rows_of_scale)
    group_columns_of_minimum = Transpose <perm = [1, 0, 2]> (minimum)
    group_rows_of_minimum = Flatten <axis = 1> (group_columns_of_minimum)
    group_minimum = Cast <to = 1> (group_rows_of_minimum)

    first = Constant <value_int = 0> ()
    one = Constant <value_int = 1> ()
    length = Constant <value_int: int = @group_size> ()
    last = Constant <value_int: int = @k> ()
    rows = Range (first, last, one)
    group_of_row = Div (rows, length)
    row_scale = Gather <axis = 0> (group_scale, group_of_row)
    row_minimum = Gather <axis = 0> (group_minimum, group_of_row)
    step_rows = Gather <axis = 0> (steps, rows)
    scaled = Mul (step_rows, row_scale)
    padded = Add (scaled, row_minimum)
"""

_BODIES = {
    # [N/16, K, 16] -> [K, N/16, 16] -> [K, N]
    "UnpackPanelsF32": f"""UnpackPanelsF32 <k, n> (panels) => (weight) {{
    columns = Transpose <perm = [1, 0, 2]> (panels)
    padded = Flatten <axis = 1> (columns)
    {_CROP} }}""",
    # [N/16, K/2, 16, 2] -> [K/2, 2, N/16, 16] -> [K, N]; 1 is float
    "UnpackPanelsBF16": f"""UnpackPanelsBF16 <k, n> (panels) => (weight) {{
    wide = Cast <to = 1> (panels)
    columns = Transpose <perm = [1, 3, 0, 2]> (wide)
    padded = Flatten <axis = 2> (columns)
    {_CROP} }}""",
    # [N/16, K/4, 16, 4] -> [K/4, 4, N/16, 16] -> [K, N]
    "InstantDequantize": f"""InstantDequantize <k, n, group_size> (panels, scale, minimum)
    => (weight) {{
    columns = Transpose <perm = [1, 3, 0, 2]> (panels)
    codes = Flatten <axis = 2> (columns)
    {_SCALE}
    {_CROP} }}""",
    # Bytes 0, 2, 1, 3 of a word hold its weights 0 and 1, 2 and 3, 4 and 5, 6 and 7: low bits first
    "InstantDequantizeU4": f"""InstantDequantizeU4 <k, n, group_size> (panels, scale, minimum)
    => (weight) {{
    order = Constant <value_ints = [0, 2, 1, 3]> ()
    pairs = Gather <axis = 3> (panels, order)
    fifteen = Constant <value = uint8[1] {{15}}> ()
    four = Constant <value = uint8[1] {{4}}> ()
    low = BitwiseAnd (pairs, fifteen)
    high = BitShift <direction = "RIGHT"> (pairs, four)
    inside = Constant <value_ints = [4]> ()
    low_of_pair = Unsqueeze (low, inside)
    high_of_pair = Unsqueeze (high, inside)
    both = Concat <axis = 4> (low_of_pair, high_of_pair)
    columns = Transpose <perm = [1, 3, 4, 0, 2]> (both)
    codes = Flatten <axis = 3> (columns)
    {_SCALE}
    {_CROP} }}""",
    # [B, S, H * D] -> [B, S, H, D], normalised along D by one weight [D] for all heads, and back
    "RMSNormPerHead": """RMSNormPerHead <num_heads, epsilon> (x, weight) => (y) {
    same = Constant <value_ints = [0, 0]> ()
    rest = Constant <value_ints = [-1]> ()
    axis = Constant <value_ints = [0]> ()
    heads = Constant <value_int: int = @num_heads> ()
    head_length = Unsqueeze (heads, axis)
    apart = Concat <axis = 0> (same, head_length, rest)
    together = Concat <axis = 0> (same, rest)
    x_heads = Reshape (x, apart)
    normed = RMSNormalization <axis = -1, epsilon: float = @epsilon> (x_heads, weight)
    y = Reshape (normed, together) }""",
    "Scaled": """Scaled <factor> (x) => (y) {
    multiplier = Constant <value_float: float = @factor> ()
    y = Mul (x, multiplier) }""",
    "SoftCap": """SoftCap <cap> (x) => (y) {
    bound = Constant <value_float: float = @cap> ()
    share = Div (x, bound)
    bent = Tanh (share)
    y = Mul (bent, bound) }""",
    # Every row of x meets the top_k experts of largest logit, ties to the lower one. The experts'
    # W [K, N] lie side by side in gate, up and down, each padded to whole panels; experts that no
    # row chose multiply no rows.
    "SparseExperts": """SparseExperts <top_k, renormalise> (x, logits, gate, up, down) => (y) {
    axis = Constant <value_ints = [0]> ()
    last = Constant <value_ints = [-1]> ()
    columns = Constant <value_ints = [1]> ()
    hidden = Shape <start = -1> (x)
    count = Shape <start = -1> (logits)
    rows_of_x = Concat <axis = 0> (last, hidden)
    rows_of_logits = Concat <axis = 0> (last, count)
    x_rows = Reshape (x, rows_of_x)
    logit_rows = Reshape (logits, rows_of_logits)

    chosen_scalar = Constant <value_int: int = @top_k> ()
    chosen = Unsqueeze (chosen_scalar, axis)
    best, ids = TopK <axis = -1, largest = 1, sorted = 1> (logit_rows, chosen)
    probabilities = Softmax <axis = -1> (logit_rows)
    shares = GatherElements <axis = -1> (probabilities, ids)
    total = ReduceSum <keepdims = 1> (shares, last)
    one = Constant <value_float = 1.0> ()
    switch = Constant <value_int: int = @renormalise> ()
    renormalised = Cast <to = 9> (switch)
    divisor = Where (renormalised, total, one)
    weights = Div (shares, divisor)

    inner = Shape <start = 0, end = 1> (down)
    inner_columns = Shape <start = 1, end = 2> (gate)
    hidden_columns = Shape <start = 1, end = 2> (down)
    inner_stride = Div (inner_columns, count)
    hidden_stride = Div (hidden_columns, count)
    zero = Constant <value_int = 0> ()
    shape = Shape (x_rows)
    nothing = ConstantOfShape (shape)
    num_experts = Squeeze (count, axis)
    always = Constant <value = bool {1}> ()
    sums = Loop (num_experts, always, nothing) <body = expert (
        int64 number, bool going, float[T, H] before) => (bool goes, float[T, H] after) {
        goes = Identity (going)
        met = Equal (ids, number)
        places = NonZero (met)
        row_ids = Gather <axis = 0> (places, zero)
        pairs = Transpose <perm = [1, 0]> (places)
        pair_weights = GatherND (weights, pairs)
        inputs = Gather <axis = 0> (x_rows, row_ids)
        number_vector = Unsqueeze (number, axis)
        inner_start = Mul (number_vector, inner_stride)
        inner_stop = Add (inner_start, inner)
        hidden_start = Mul (number_vector, hidden_stride)
        hidden_stop = Add (hidden_start, hidden)
        gate_weight = Slice (gate, inner_start, inner_stop, columns)
        up_weight = Slice (up, inner_start, inner_stop, columns)
        down_weight = Slice (down, hidden_start, hidden_stop, columns)
        gates = MatMul (inputs, gate_weight)
        ups = MatMul (inputs, up_weight)
        activated = Swish <alpha = 1.0> (gates)
        products = Mul (activated, ups)
        outputs = MatMul (products, down_weight)
        weight_columns = Unsqueeze (pair_weights, columns)
        weighted = Mul (outputs, weight_columns)
        targets = Unsqueeze (row_ids, columns)
        after = ScatterND <reduction = "add"> (before, targets, weighted)
    }>
    shape_of_x = Shape (x)
    y = Reshape (sums, shape_of_x) }""",
    # x [B, S, N] by the sigmoid of one logit a row [B, S, 1]
    "GateBySigmoid": """GateBySigmoid (x, logit) => (y) {
    share = Sigmoid (logit)
    y = Mul (x, share) }""",
}


def local_function(name: str) -> ir.Function:
    """Return a fresh copy of the local function called `name`."""
    import onnx.parser
    import onnx_ir as ir

    return ir.from_proto(onnx.parser.parse_function(_HEADER + (_BODIES | ATTENTION_BODIES)[name]))
