#!/usr/bin/env python3
"""An agent that runs inside the task's sandbox: what it does there is its work, what it prints is its answer.

It solves nothing by itself. It shows where things are, leaves a file, and answers with the last word of its instruction.
"""
import os
import sys

with open(sys.argv[1], encoding="utf-8") as f:
    instruction = f.read()

with open("notes.txt", "w", encoding="utf-8") as f:  # the working directory is the task's
    f.write(f"stage {os.environ['EVALRUN_STAGE']}: {len(instruction)} characters to read\n")

print("working in", os.getcwd(), file=sys.stderr)
print(instruction.split()[-1])
