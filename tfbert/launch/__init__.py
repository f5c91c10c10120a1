"""Many workers on this machine: `python -m tfbert.launch --num_workers=2 -- run_finetune.py --strategy=multi_worker`.

Starts the command N times with TF_CONFIG on free loopback ports and the GPUs divided among them, passes their output on
line by line, and treats them as one: signals go to all, the first failure ends all, and with `--max_restarts` all start
again. Imports no TensorFlow.
"""
