"""What a run is: dataclasses, which mode takes which option, every rule. The standard library only."""
