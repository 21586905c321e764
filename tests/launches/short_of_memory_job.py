"""`launcher run` on a card that holds less than the plan was made for; what is started again meets an honest one.

short_of_memory_job.py SHARE RECIPE [KEY=VALUE]...    SHARE is that of the budget which the card really holds
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from launcher import pipeline
from launcher.cli import main
from launcher.planner.proposal import Proposal
from launcher.simulated_card import SimulatedCard

if __name__ == "__main__":
    share = float(sys.argv[1])

    def cap(proposal: Proposal, device: object) -> SimulatedCard:
        return SimulatedCard(int(share * proposal.budget))

    pipeline.cap = cap
    sys.argv[1:2] = ["run"]
    main()
