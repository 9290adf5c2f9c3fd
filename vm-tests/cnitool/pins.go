//go:build pins

package main

// Built as it is; named here so that `go mod tidy` keeps what it needs.
import _ "github.com/containernetworking/cni/cnitool"
