#!/bin/bash
echo ready > /tmp/tests-ready
