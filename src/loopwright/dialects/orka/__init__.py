"""The dialect of loop nodes: an orchestrator and its agents."""
