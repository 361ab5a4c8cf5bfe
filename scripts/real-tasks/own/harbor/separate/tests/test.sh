#!/bin/bash
r=0
if [ "$(jq .answer /app/answer.json)" = 42 ] && [ ! -e /app/not-an-artifact ]; then r=1; fi
echo $r > /logs/verifier/reward.txt
