#!/bin/bash
echo Helo > /app/hello.txt
