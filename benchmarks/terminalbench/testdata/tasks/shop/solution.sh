#!/bin/bash
curl -sf http://server:8000/price > /app/price.txt
