#!/bin/bash
if python3 -m pytest /tests/test_state.py -rA; then
	echo 1 > /logs/verifier/reward.txt
else
	echo 0 > /logs/verifier/reward.txt
fi
