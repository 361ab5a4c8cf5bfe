#!/bin/bash
if [ "$(cat /work/list.txt)" = "${WANT:-first}" ]; then r=1.0; else r=0.0; fi
echo "{\"reward\": $r, \"words\": $(wc -w < /work/list.txt || echo 0)}" > /logs/verifier/reward.json
