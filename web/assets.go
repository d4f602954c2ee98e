package web

import (
	"embed"
	"io/fs"
	"net/http"
	"path"
)

// The pages, as they are written: there is no build step.
//
//go:embed app
var assets embed.FS

// servePage serves the one page that there is.
func servePage(w http.ResponseWriter, r *http.Request) { sendAsset(w, r, "app/index.html") }

// serveAsset serves a style or a script.
func serveAsset(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Path[1:]
	if ext := path.Ext(name); ext != ".js" && ext != ".css" {
		http.NotFound(w, r)
		return
	}
	sendAsset(w, r, name)
}

func sendAsset(w http.ResponseWriter, r *http.Request, name string) {
	b, err := fs.ReadFile(assets, name)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", typeOf(name))
	sendBytes(w, r, b)
}

// typeOf does not ask the machine, which may have a type of its own for an extension.
func typeOf(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	}
	return "application/octet-stream"
}
