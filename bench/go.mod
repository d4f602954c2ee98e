module hallmark/bench

go 1.26.0

require (
	github.com/prometheus/procfs v0.23.0
	hallmark v0.0.0
)

require (
	github.com/chromedp/cdproto v0.0.0-20250724212937-08a3db8b4327
	github.com/chromedp/chromedp v0.14.2
	github.com/cilium/ebpf v0.22.0
	github.com/google/pprof v0.0.0-20260906184651-6331bc6350fe
	github.com/klauspost/compress v1.20.3
	golang.org/x/sys v0.49.0
)

require (
	github.com/chromedp/sysutil v1.1.0 // indirect
	github.com/go-json-experiment/json v0.0.0-20250725192818-e39067aee2d2 // indirect
	github.com/gobwas/httphead v0.1.0 // indirect
	github.com/gobwas/pool v0.2.1 // indirect
	github.com/gobwas/ws v1.4.0 // indirect
	github.com/ianlancetaylor/demangle v0.0.0-20260724033716-83e58baca724 // indirect
	github.com/xi2/xz v0.0.0-20171230120015-48954b6210f8 // indirect
	go.opentelemetry.io/proto/slim/otlp v1.11.0 // indirect
	go.opentelemetry.io/proto/slim/otlp/collector/profiles/v1development v0.4.0 // indirect
	go.opentelemetry.io/proto/slim/otlp/profiles/v1development v0.4.0 // indirect
	golang.org/x/arch v0.33.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)

replace hallmark => ../
