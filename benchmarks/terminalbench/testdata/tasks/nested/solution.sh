#!/bin/bash
id -un > /home/ada/who.txt
