#!/bin/bash
if [ "$(cat /data/list.txt)" = "${WANT:-first}" ]; then r=1.0; else r=0.0; fi
echo "{\"reward\": $r, \"words\": $(wc -w < /data/list.txt || echo 0)}" > /logs/verifier/reward.json
