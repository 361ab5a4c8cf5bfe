#!/bin/bash
echo '{"answer": 42}' > /app/answer.json
touch /app/not-an-artifact
