#!/bin/bash
[ "$WHO" = oracle ] && curl -sf http://api:8000/secret > /app/word.txt
