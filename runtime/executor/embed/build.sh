#!/bin/sh
# Builds the executor for each architecture that a sandbox may have.
set -eu
cd "$(dirname "$0")"
for arch in amd64 arm64; do
	CGO_ENABLED=0 GOOS=linux GOARCH=$arch go build -trimpath -buildvcs=false -ldflags '-s -w -buildid=' -o "evalrun-init-$arch.new" ../evalrun-init
	mv "evalrun-init-$arch.new" "evalrun-init-$arch"
done
