module hallmark/bench

go 1.26.0

require (
	github.com/prometheus/procfs v0.23.0
	hallmark v0.0.0
)

require golang.org/x/sys v0.49.0

require github.com/cilium/ebpf v0.22.0 // indirect

replace hallmark => ../
