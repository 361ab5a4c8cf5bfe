#!/bin/bash
printf " %s" "$(cat word)" >> /work/list.txt
