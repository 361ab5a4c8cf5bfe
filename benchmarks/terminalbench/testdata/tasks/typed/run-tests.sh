#!/bin/bash
test -f /tmp/tests-ready || exit 1
echo "SWEBench results starts here"
if cmp -s /app/typed.txt "$TEST_DIR/want.txt"; then echo PASSED; else echo FAILED; fi
echo "SWEBench results ends here"
