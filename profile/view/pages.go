package view

import "net/http"

// pages replaces those of the driver's pages that are not what they should be.
func (s *source) pages(pages map[string]http.Handler) map[string]http.Handler {
	pages["/download"] = http.HandlerFunc(s.serveDownload)
	pages["/disasm"] = http.HandlerFunc(noDisassembly)
	return pages
}

// serveDownload sends the profile without the names that only the pages have.
func (s *source) serveDownload(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/vnd.google.protobuf+gzip")
	w.Header().Set("Content-Disposition", "attachment;filename=profile.pb.gz")
	w.Write(s.download)
}

func noDisassembly(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "There is no disassembly here. Where the binaries are at hand, 'go tool pprof -http' has it.",
		http.StatusNotImplemented)
}
