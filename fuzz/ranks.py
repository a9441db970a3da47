"""What a step of a rank among several (data-parallel attention) may be padded with."""

from __future__ import annotations

from fuzz.program import Decode, Idle, Verify
from fuzz.request import InvalidOp
from stubs.world import World

DEAD_MAX = 64  # far above what is drawn; each costs a row of every layer


def check_padding(op: Decode | Idle | Verify, world: World) -> None:
    """Ranks are alike: no other has more requests in a step than this one may run."""
    beside_extend, rows = getattr(op, "beside_extend", 0), op.dead + len(getattr(op, "requests", ()))
    if isinstance(op, Verify) and op.dead and not world.has_draft_model:
        raise InvalidOp(f"padding of a verify of {world.spec_algorithm}", "none: EAGLE's alone is padded")
    if world.encoder_decoder and (op.dead or beside_extend):
        raise InvalidOp("padding in a world with encoders", "none: not tried with them yet")
    if op.dead > DEAD_MAX:
        raise InvalidOp(f"{op.dead} dead rows", f"at most {DEAD_MAX}")
    if beside_extend not in (0, 1):
        raise InvalidOp(f"beside_extend is {beside_extend}", "0 or 1")
    if isinstance(op, Decode) and beside_extend and op.dead:
        raise InvalidOp(f"{op.dead} dead rows of a step that is run as an extend", "none")
    if isinstance(op, Idle) and beside_extend and not op.dead:
        raise InvalidOp("an idle step beside an extend without dead rows", "at least one")
    if not beside_extend and rows > world.max_running_requests:
        raise InvalidOp(f"a step of {rows} rows, dead ones included", f"at most {world.max_running_requests}")
