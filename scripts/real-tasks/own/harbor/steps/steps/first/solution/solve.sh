#!/bin/bash
printf first > /data/list.txt
