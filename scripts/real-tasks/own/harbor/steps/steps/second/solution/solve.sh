#!/bin/bash
printf " %s" "$(cat word)" >> /data/list.txt
