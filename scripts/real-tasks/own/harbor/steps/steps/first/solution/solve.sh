#!/bin/bash
printf first > /work/list.txt
