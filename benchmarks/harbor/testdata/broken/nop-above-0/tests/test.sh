#!/bin/bash
if [ -e /app/goodbye.txt ]; then echo 0; else echo 1; fi > /logs/verifier/reward.txt
