// The runtime's side of CNI in tests: libcni's own command, built by `cargo xtask test vm`. Nothing of
// it ships. To move to another release: change the version, run `go mod tidy`.
module spiderpool.test/cnitool

go 1.21

require github.com/containernetworking/cni v1.3.1

require (
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/spf13/cobra v1.9.1 // indirect
	github.com/spf13/pflag v1.0.6 // indirect
	go.opentelemetry.io/otel v1.29.0 // indirect
	go.opentelemetry.io/otel/trace v1.29.0 // indirect
)
