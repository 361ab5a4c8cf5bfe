#!/bin/bash
[ "$(cat /app/hello.txt)" = Hello ] && echo fine
