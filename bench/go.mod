module hallmark/bench

go 1.26.0

require (
	github.com/prometheus/procfs v0.23.0
	hallmark v0.0.0
)

require (
	github.com/cilium/ebpf v0.22.0
	github.com/google/pprof v0.0.0-20260906184651-6331bc6350fe
	golang.org/x/sys v0.49.0
)

require (
	github.com/ianlancetaylor/demangle v0.0.0-20260724033716-83e58baca724 // indirect
	github.com/klauspost/compress v1.20.3 // indirect
	github.com/xi2/xz v0.0.0-20171230120015-48954b6210f8 // indirect
)

replace hallmark => ../
